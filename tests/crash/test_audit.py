"""The audit after a crash reads a platform whose loops go on, and does not take their steps for faults."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxer.backends.scripted import Scripted
from sandboxer.observe.events import Event
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.crash import audit
from tests.support.clock import ManualClock
from tests.support.sandboxes import ACTS


async def test_a_step_between_the_record_and_its_events_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    backends = {"ext.namespaces": Scripted(name="ext.namespaces", clock=clock)}
    settings = Settings(state_dir=tmp_path / "state", charging=False)
    read, frozen = audit.history, set[str]()

    async def after_a_step(platform: Platform, sandbox_id: str) -> list[Event]:
        if sandbox_id not in frozen:
            frozen.add(sandbox_id)
            await ACTS["freeze"](platform.sandboxes, sandbox_id, audit.OWNER)
        return await read(platform, sandbox_id)

    monkeypatch.setattr(audit, "history", after_a_step)
    async with open_platform(settings, clock=clock, backends=backends) as platform:
        await creation.create(platform.sandboxes, CreateRequest(), audit.OWNER)
        assert await audit.audit(platform) == []
        assert frozen
