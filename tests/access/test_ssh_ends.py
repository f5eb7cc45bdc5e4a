"""What ends an open connection, and what its user reads then; and a host key that stays. Real walls."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from sandboxer.access.ssh.room import HOST_KEY_FILE
from tests.access.test_ssh import Gated, gated, opened  # noqa: F401
from tests.http.test_real import why_not


async def test_what_opened_a_connection_ends_it_and_says_why(gated: Gated) -> None:  # noqa: F811
    served = gated.served
    agent = await served.stranger("agent")
    credit = {"sats": 10**6, "id": "ssh", "reason": "a test"}
    assert (await served.client.post("/v1/accounts/agent/adjust", credit)).status_code < 300
    made = await agent.post("/v1/sandboxes", {"resources": {"disk_mb": 64}})
    assert made.status_code == 201, made.text
    theirs = f"/v1/sandboxes/{made.json()['id']}"
    stopped, destroyed, kept = [await served.sandbox() for _ in range(3)]
    mine, passing, agents = gated.new_key("mine"), gated.new_key("passing"), gated.new_key("agents")
    await gated.add(mine)
    passing_id = await gated.add(passing)
    await gated.add(agents, agent)
    words = "echo up; exec sleep 1000"
    held = {
        "revoked": await gated.started(passing, kept, words),
        "suspended": await gated.started(agents, theirs, words),
        "stopped": await gated.started(mine, stopped, words),
        "gone": await gated.started(mine, destroyed, words),
    }
    for client in held.values():
        assert client.stdout is not None
        async with asyncio.timeout(30):
            seen = await client.stdout.readline()
        assert seen == b"up\n", await client.communicate()
    assert (await served.client.delete(f"/v1/ssh-keys/{passing_id}")).status_code == 204
    suspended = await served.client.post("/v1/accounts/agent/suspend", {"reason": "a test"})
    assert suspended.status_code == 200
    assert (await served.client.post(f"{stopped}/stop")).status_code == 200
    assert (await served.client.delete(destroyed)).status_code < 300
    for why, client in held.items():
        async with asyncio.timeout(20):
            _, err = await client.communicate()
        assert client.returncode == 255, (why, err)
        assert why in err.decode(), (why, err)
    # And nobody comes in anew, except to one that can be woken, where it is said how.
    for key, path in ((passing, kept), (agents, theirs), (mine, destroyed)):
        assert "Permission denied" in (await gated.ssh(key, path, "true")).err
    asleep = await gated.ssh(mine, stopped, "true")
    assert asleep.code == 255
    assert f"sandboxer resume {stopped.rsplit('/', 1)[1]}" in asleep.err


async def test_its_host_key_outlives_a_restart_and_can_be_changed(tmp_path: Path) -> None:
    if why := why_not():
        pytest.skip(why)
    seen = []
    try:
        for _ in range(2):
            async with opened(tmp_path) as gate:
                seen.append(gate.gateway.host_key)
        (tmp_path / "state" / HOST_KEY_FILE).unlink()
        async with opened(tmp_path) as gate:
            seen.append(gate.gateway.host_key)
    finally:
        if os.path.ismount(tmp_path / "state" / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(tmp_path / "state" / "pool")], check=True)
    assert seen[0] == seen[1] != seen[2]
