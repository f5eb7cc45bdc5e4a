"""Flow 9: save state, fork it, roll back to it. Time travel for sandboxes."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sandboxer.settings import Settings
from tests.support.flows import Charging
from tests.support.http.real import GUEST, IMAGES, why_not
from tests.support.http.served import Served, serving


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Served]:
    if why := why_not():
        pytest.skip(why)
    state = tmp_path / "state"
    settings = Settings(
        state_dir=state, host="127.0.0.1", port=0, images_dir=IMAGES, guest_dir=GUEST, pool_size_mb=800
    )
    try:
        async with serving(settings, None) as running:
            running.defaults = {"resources": {"disk_mb": 64}}
            yield running
            for sandbox in (await running.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]:
                await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


async def sh(real: Served, sandbox_id: str, script: str) -> str:
    answer = await real.client.post(f"/v1/sandboxes/{sandbox_id}/exec", {"argv": ["/bin/sh", "-c", script]})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["stdout"])


async def post(real: Served, path: str, body: object = None, status: int = 200) -> Any:
    answer = await real.client.post(path, body)
    assert answer.status_code == status, answer.text
    return answer.json()


async def test_an_agent_saves_its_state_forks_it_and_travels_back(real: Served) -> None:
    sandbox = (await real.sandbox(profile="profile.agent-dev")).rsplit("/", 1)[1]
    await sh(
        real, sandbox, "mkdir -p /work/app && echo 'x = 42' > /work/app/state.py && rm /etc/debian_version"
    )
    held = "exec 3>>/work/app/log; while :; do echo line >&3; sleep 0.01; done"
    await post(real, f"/v1/sandboxes/{sandbox}/processes", {"argv": ["/bin/sh", "-c", held]}, status=201)

    # Saved while something writes: what runs goes on.
    first = await post(real, f"/v1/sandboxes/{sandbox}/snapshots", {"name": "first"}, status=201)
    assert (first["state"], first["content"], first["sandbox_id"]) == ("kept", "files", sandbox)
    running = (await real.client.get(f"/v1/sandboxes/{sandbox}/processes")).json()["processes"]
    assert [each["running"] for each in running] == [True]

    # Forked: three new machines with the same files, each on its own from then on.
    made = await post(
        real, f"/v1/snapshots/{first['id']}/clone", {"count": 3, "labels": {"fork": "yes"}}, status=201
    )
    clones = [each["id"] for each in made["sandboxes"]]
    assert len(clones) == 3
    assert made["failed"] == []
    probe = "cat /work/app/state.py; test -e /etc/debian_version || echo removed; tail -1 /work/app/log"
    for clone in clones:
        assert await sh(real, clone, probe) == "x = 42\nremoved\nline\n"
    names = {await sh(real, each, "cat /etc/machine-id; hostname; cat /etc/hostname") for each in clones}
    names.add(await sh(real, sandbox, "cat /etc/machine-id; hostname; cat /etc/hostname"))
    assert len(names) == 4
    await sh(real, clones[0], "echo 'x = 1' > /work/app/state.py")
    assert await sh(real, clones[1], "cat /work/app/state.py") == "x = 42\n"

    # A sandbox made with `snapshot` is the same as a clone.
    answer = await post(real, "/v1/sandboxes", {"snapshot": first["id"]}, status=201)
    assert answer["snapshot"] == first["id"]
    assert answer["profile"] == "profile.agent-dev"
    assert await sh(real, answer["id"], "cat /work/app/state.py") == "x = 42\n"

    # Rolled back: the old files, the same id, nothing of what ran.
    await sh(real, sandbox, "echo 'x = broken' > /work/app/state.py; echo later > /work/later")
    second = await post(real, f"/v1/sandboxes/{sandbox}/snapshots", {"name": "second"}, status=201)
    assert second["parent_id"] == first["id"]
    restored = await post(real, f"/v1/snapshots/{first['id']}/restore")
    assert (restored["id"], restored["state"]) == (sandbox, "ready")
    assert (
        await sh(real, sandbox, "cat /work/app/state.py; test -e /work/later || echo gone")
        == "x = 42\ngone\n"
    )
    running = (await real.client.get(f"/v1/sandboxes/{sandbox}/processes")).json()["processes"]
    assert running == []
    # And forward again.
    await post(real, f"/v1/snapshots/{second['id']}/restore")
    assert await sh(real, sandbox, "cat /work/app/state.py") == "x = broken\n"

    # The lineage shows it all.
    lines = (await real.client.get("/v1/snapshots/tree")).json()["lines"]
    assert [(line["name"], line["depth"]) for line in lines] == [("first", 0), ("second", 1)]
    assert sorted(lines[0]["sandbox_ids"]) == sorted([*clones, answer["id"]])
    assert lines[1]["sandbox_ids"] == [sandbox]
    await outlives(real, sandbox, first["id"], clones[1])


async def outlives(real: Served, sandbox: str, first: str, clone: str) -> None:
    # It outlives its source; restored it can no longer be, forked it can.
    await real.client.delete(f"/v1/sandboxes/{sandbox}")
    refused = await real.client.post(f"/v1/snapshots/{first}/restore")
    assert (refused.status_code, refused.json()["reason"]) == (409, "source_gone")
    again = await post(real, f"/v1/snapshots/{first}/clone", {}, status=201)
    assert await sh(real, again["sandboxes"][0]["id"], "cat /work/app/state.py") == "x = 42\n"

    # Looked at, and dropped: what was made from it stays.
    shown = (await real.client.get(f"/v1/snapshots/{first}")).json()
    assert shown["size_is_exact"]
    assert shown["size_bytes"] >= 4096
    assert shown["exclusive_bytes"] is not None
    dropped = await real.client.delete(f"/v1/snapshots/{first}")
    assert dropped.json()["state"] == "dropped"
    assert await sh(real, clone, "cat /work/app/state.py") == "x = 42\n"
    assert (await real.client.post(f"/v1/snapshots/{first}/clone", {})).status_code == 409


async def test_the_shipped_checks_of_this_flow_pass(charging: Charging) -> None:
    await charging.passes(9)
