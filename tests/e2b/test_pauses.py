"""What becomes of a sandbox whose time is over, on real walls, through E2B's own Python SDK."""

from __future__ import annotations

from datetime import UTC, datetime

import httpx
import pytest
from e2b.exceptions import SandboxNotRunningException

from e2b import Sandbox, SandboxException
from tests.support.e2b import until_paused
from tests.support.platforms import Up


def left(sandbox: Sandbox) -> float:
    return (sandbox.get_info().end_at - datetime.now(UTC)).total_seconds()


def test_a_pause_at_the_end_keeps_files_and_use_wakes_whoever_asked_for_it(real_key: str) -> None:
    kept, waking = (
        Sandbox.create(timeout=600, lifecycle=lifecycle, allow_internet_access=False)
        for lifecycle in ({"on_timeout": "pause"}, {"on_timeout": "pause", "auto_resume": True})
    )
    try:
        for one in (kept, waking):
            one.files.write("kept", "still here")
            one.set_timeout(1)
        until_paused(kept)
        until_paused(waking)
        assert kept.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": False}
        assert waking.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": True}
        assert not kept.is_running()
        with pytest.raises(SandboxNotRunningException):
            kept.commands.run("true")
        kept.connect(timeout=120)
        assert kept.files.read("kept") == "still here"
        assert 60 < left(kept) <= 120
        assert not waking.is_running()
        assert waking.commands.run("cat kept").stdout == "still here"
        assert 200 < left(waking) <= 300
        assert (kept.pause(), kept.pause()) == (True, False)
    finally:
        assert (kept.kill(), waking.kill()) == (True, True)


def test_without_a_word_it_is_killed(real_key: str) -> None:
    with Sandbox.create(timeout=600, allow_internet_access=False) as sandbox:
        assert sandbox.get_info().lifecycle == {"on_timeout": "kill", "auto_resume": False}


def test_memory_is_refused_and_the_older_spelling_is_understood(real_up: Up, real_key: str) -> None:
    with pytest.raises(SandboxException, match="memory of processes cannot be kept"):
        Sandbox.create(lifecycle={"on_timeout": {"action": "pause", "mode": "full"}})
    head = {"X-API-Key": real_key}
    for said, status in (({"autoPause": True}, 201), ({"autoResume": {"enabled": True}}, 400)):
        body = {"templateID": "base", "timeout": 60, "allow_internet_access": False, **said}
        made = httpx.post(f"{real_up.url}/e2b/sandboxes", json=body, headers=head, trust_env=False)
        assert made.status_code == status, made.text
        if status == 201:
            found = Sandbox.connect(made.json()["sandboxID"])
            assert found.get_info().lifecycle == {"on_timeout": "pause", "auto_resume": False}
            found.kill()
