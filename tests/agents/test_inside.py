"""A sandbox finds in `/run/sandboxer` what it is, after every change of it, on real walls."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandboxer.agents.inside.use_cases import Descriptions
from sandboxer.kernel.tasks import own_tasks
from sandboxer.settings import Settings
from tests.support.http.real import IMAGES, on_real_walls, settings_on_walls, sh, why_not
from tests.support.http.served import Served
from tests.support.oci import EACH_WALL, settings_on

FILE = "/run/sandboxer/sandbox.json"


@pytest.fixture(params=EACH_WALL)
async def real(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Served]:
    settings = settings_on(request.param, settings_on_walls(tmp_path / "state", charging=True))
    async with on_real_walls(settings, disk_mb=128) as running:
        yield running


async def told(served: Served, path: str) -> dict[str, Any]:
    """What its own client says, as any program inside has it."""
    ran = await sh(served, path, "sandboxer discover --json")
    assert ran["exit_code"] == 0, ran
    facts: dict[str, Any] = json.loads(str(ran["stdout"]))
    return facts


async def record(served: Served, path: str) -> dict[str, Any]:
    found: dict[str, Any] = (await served.client.get(path)).json()
    return found


def is_same_moment(said: str, recorded: str) -> bool:
    apart = datetime.fromisoformat(recorded) - datetime.fromisoformat(said)
    return timedelta(0) <= apart < timedelta(seconds=1)


async def agrees(served: Served, path: str) -> dict[str, Any]:
    """What it is told is what its record says."""
    facts, kept = await told(served, path), await record(served, path)
    assert facts["id"] == kept["id"]
    assert facts["limits"] == kept["resources"]
    assert (facts["name"], facts["trust"], facts["image"]) == (kept["name"], kept["trust"], kept["image"])
    assert is_same_moment(facts["ends_at"], kept["expires_at"])
    return facts


async def test_a_new_sandbox_knows_what_it_is(real: Served) -> None:
    path = await real.sandbox(name="first", ttl="10m", resources={"disk_mb": 96, "memory_mb": 300})
    facts = await agrees(real, path)
    assert facts["limits"]["memory_mb"] == 300
    assert (facts["depth"], facts["budget"], facts["api"]) == (0, None, None)
    page = str((await sh(real, path, "sandboxer discover"))["stdout"])
    assert f"This is sandbox {facts['id']} (first)." in page
    assert f"It ends at {facts['ends_at']}" in page
    assert (await sh(real, path, f"echo forged > {FILE}"))["exit_code"] != 0
    assert (await sh(real, path, "cat /run/sandboxer/README"))["stdout"] == page


async def test_what_changes_is_told_before_the_change_is_answered(real: Served) -> None:
    path = await real.sandbox(ttl="10m")
    first = await agrees(real, path)
    answer = await real.client.send("PATCH", f"{path}/ttl", body={"duration": "5m"})
    assert answer.status_code == 200, answer.text
    later = await agrees(real, path)
    assert later["ends_at"] > first["ends_at"]
    assert (await real.client.post(f"{path}/boost", {"vcpus": 2})).status_code == 200
    assert (await agrees(real, path))["limits"]["vcpus"] == 2
    assert (await real.client.post(f"{path}/unboost")).status_code == 200
    assert (await agrees(real, path))["limits"]["vcpus"] == 1
    assert (await real.client.send("PATCH", path, body={"name": "renamed"})).status_code == 200
    assert (await agrees(real, path))["name"] == "renamed"


async def test_it_is_true_again_after_a_resume_a_restore_and_in_a_clone(real: Served) -> None:
    path = await real.sandbox(ttl="10m")
    before = await agrees(real, path)
    kept = (await real.client.post(f"{path}/snapshots", {"name": "kept"})).json()
    assert (await real.client.post(f"{path}/stop")).status_code == 200
    assert (await real.client.post(f"{path}/resume")).status_code == 200
    assert (await agrees(real, path))["ends_at"] >= before["ends_at"]
    restored = await real.client.post(f"/v1/snapshots/{kept['id']}/restore")
    assert restored.status_code == 200, restored.text
    await agrees(real, path)
    clone = await real.sandbox(snapshot=kept["id"], ttl="20m")
    assert (await agrees(real, clone))["id"] != before["id"]


async def test_a_warm_sandbox_is_told_who_has_it(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    settings = Settings(
        state_dir=tmp_path / "state",
        host="127.0.0.1",
        port=0,
        images_dir=IMAGES,
        pool_size_mb=2000,
        charging=False,
        warm_pool={"profile.agent-dev": 1},
    )
    async with on_real_walls(settings) as served:
        served.defaults = {}
        path = await served.sandbox(name="claimed", ttl="7m")
        assert (await agrees(served, path))["name"] == "claimed"


async def test_a_server_that_starts_again_tells_those_that_run(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    settings = Settings(
        state_dir=tmp_path / "state",
        host="127.0.0.1",
        port=0,
        images_dir=IMAGES,
        pool_size_mb=800,
        charging=False,
    )
    async with on_real_walls(settings, disk_mb=96) as served:
        path = await served.sandbox(ttl="10m")
        sandbox_id = path.rpartition("/")[2]
        repository = served.platform.sandboxes.repository
        # As a server that died between a commit and the word of it.
        repository._afters.clear()
        assert (await served.client.send("PATCH", f"{path}/ttl", body={"duration": "5m"})).status_code == 200
        old = await told(served, path)
        platform = served.platform
        async with own_tasks() as tasks:
            anew = Descriptions(platform.sandboxes, platform.store, platform.inception, tasks)
            await anew.tell_all()
        assert repository.peek(sandbox_id) is not None
        assert (await agrees(served, path))["ends_at"] > old["ends_at"]


async def test_a_guest_that_did_not_answer_is_told_once_it_does_without_another_change(real: Served) -> None:
    path = await real.sandbox(ttl="10m")
    sandbox = real.platform.sandboxes.repository.peek(path.rpartition("/")[2])
    assert sandbox is not None
    assert sandbox.handle is not None
    supervisor = int(str(sandbox.handle.data["pid"]))
    os.kill(supervisor, signal.SIGSTOP)
    try:
        for left in ("30m", "40m"):
            async with asyncio.timeout(6):
                changed = await real.client.send("PATCH", f"{path}/ttl", body={"duration": left})
            assert changed.status_code == 200, changed.text
    finally:
        os.kill(supervisor, signal.SIGCONT)
    ends = (await record(real, path))["expires_at"]
    async with asyncio.timeout(20):
        while not is_same_moment((await told(real, path))["ends_at"], ends):
            # What was sent before it was stopped may be read first.
            pass


async def test_a_sandbox_that_may_not_ask_is_told_so_in_plain_words(real: Served) -> None:
    path = await real.sandbox()
    ran = await sh(real, path, "sandboxer api GET /v1/sandboxes")
    assert ran["exit_code"] == 5
    assert "may not speak to the platform" in str(ran["stderr"])


async def test_a_program_of_the_same_name_in_the_image_is_the_one_that_runs(real: Served) -> None:
    path = await real.sandbox()
    script = "printf '#!/bin/sh\\necho theirs \"$@\"\\n' > /usr/bin/sandboxer; chmod 755 /usr/bin/sandboxer"
    ran = await sh(real, path, f"{script}; sandboxer discover --json")
    assert ran["stdout"] == "theirs discover --json\n"
    # Even if that one comes back to ours, nobody turns round for ever.
    loop = "printf '#!/bin/sh\\nexec /usr/local/bin/sandboxer \"$@\"\\n' > /usr/bin/sandboxer"
    ran = await sh(real, path, f"{loop}; sandboxer discover --json")
    assert json.loads(str(ran["stdout"]))["id"] == path.rpartition("/")[2]
