"""What ends an open connection, and what its user reads then; and a host key that stays. Real walls."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from sandboxer.access.ssh import HOST_KEY_FILE
from tests.support.http.real import why_not
from tests.support.http.signed import Client
from tests.support.ssh import Gated, gated, opened  # noqa: F401


async def test_what_opened_a_connection_ends_it_and_says_why(gated: Gated) -> None:
    served = gated.served
    agent, robbed = await served.stranger("agent"), await served.stranger("robbed")
    theirs, stolen = await _paid_sandbox(gated, agent, "agent"), await _paid_sandbox(gated, robbed, "robbed")
    stopped, destroyed, kept = [await served.sandbox() for _ in range(3)]
    mine, passing, agents = gated.new_key("mine"), gated.new_key("passing"), gated.new_key("agents")
    await gated.add(mine)
    passing_id = await gated.add(passing)
    await gated.add(agents, agent)
    thiefs = gated.new_key("thiefs")
    await gated.add(thiefs, robbed)
    words = "echo up; exec sleep 1000"
    held = {
        "revoked": await gated.started(passing, kept, words),
        "suspended": await gated.started(agents, theirs, words),
        "ended": await gated.started(thiefs, stolen, words),
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
    # What was added by the old secret opens nothing any more.
    replaced = await served.client.post(f"/v1/keys/{robbed.credentials.public_key}/regenerate", {})
    assert replaced.status_code == 200, replaced.text
    assert (await served.client.post(f"{stopped}/stop")).status_code == 200
    assert (await served.client.delete(destroyed)).status_code < 300
    for why, client in held.items():
        async with asyncio.timeout(20):
            _, err = await client.communicate()
        assert client.returncode == 255, (why, err)
        assert why in err.decode(), (why, err)
    # And nobody comes in anew, except to one that can be woken, where it is said how.
    for key, path in ((passing, kept), (agents, theirs), (thiefs, stolen), (mine, destroyed)):
        assert "Permission denied" in (await gated.ssh(key, path, "true")).err
    asleep = await gated.ssh(mine, stopped, "true")
    assert asleep.code == 255
    assert f"sandboxer resume {stopped.rsplit('/', 1)[1]}" in asleep.err


async def _paid_sandbox(gated: Gated, client: Client, account: str) -> str:
    credit = {"sats": 10**6, "id": f"ssh-{account}", "reason": "a test"}
    paid = await gated.served.client.post(f"/v1/accounts/{account}/adjust", credit)
    assert paid.status_code < 300, paid.text
    made = await client.post("/v1/sandboxes", {"resources": {"disk_mb": 64}})
    assert made.status_code == 201, made.text
    return f"/v1/sandboxes/{made.json()['id']}"


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
