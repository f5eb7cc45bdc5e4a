"""Whoever cannot pay for a batch has nothing copied ahead for it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from sandboxer.artifacts.clones import Batch
from sandboxer.artifacts.snapshots.use_cases import Wanted
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import InsufficientCredit
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
from tests.support.charging import fund, paying, settled
from tests.support.clock import ManualClock
from tests.support.sandboxes import ALICE, OpenPlatform


async def test_disks_are_copied_ahead_for_those_who_can_pay_and_for_nobody_else(
    open_one: OpenPlatform, clock: ManualClock, backend: Scripted, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    @asynccontextmanager
    async def copies_ahead(disk_id: str, count: int) -> AsyncIterator[None]:
        asked.append(count)
        yield

    monkeypatch.setattr(backend, "copies_ahead", copies_ahead, raising=False)
    async with paying(open_one, sats=10) as platform:
        sandbox = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
        snapshot = await platform.artifacts.snapshots.take(sandbox.id, Wanted(), ALICE)
        clone = platform.artifacts.cloning.clone
        await lifetime.destroy(platform.sandboxes, sandbox.id, ALICE)
        clock.advance(timedelta(seconds=1))
        while (bucket := await settled(platform)).posted > 0:
            spender = await creation.create(platform.sandboxes, CreateRequest(ttl="4h"), ALICE)
            clock.advance(timedelta(seconds=bucket.posted))
            await lifetime.destroy(platform.sandboxes, spender.id, ALICE)
        with pytest.raises(InsufficientCredit):
            await clone(snapshot.id, CreateRequest(), ALICE, Batch(count=5))
        assert asked == []
        await fund(platform, 100_000, id="second")
        made = await clone(snapshot.id, CreateRequest(), ALICE, Batch(count=3))
        assert (len(made.sandboxes), asked) == (3, [3])
