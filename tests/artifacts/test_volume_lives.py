"""What becomes of a volume when something happens to its sandbox: on real walls, over HTTP."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sandboxer.backends.namespaces import open_backend
from sandboxer.backends.namespaces.kept.copies import Copies
from sandboxer.kernel.values import new_id
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.settings import Settings
from tests.support.http.accounts import funded
from tests.support.http.real import IMAGES, real, why_not
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client
from tests.support.platforms import end_everything, free_port, start_server, why_not_real
from tests.support.real_backend import clear, remove_leftovers, require_walls, settings_for, state_folder

__all__ = ["real"]
SMALL = {"resources": {"disk_mb": 64, "memory_mb": 128}}


def having(mode: str = "rw", **more: object) -> dict[str, object]:
    return {**SMALL, "volumes": [{"volume": "data", "path": "/data", "mode": mode}], **more}


async def good(client: Client, method: str, path: str, body: object = None) -> Any:
    answer = await client.send(method, path, body=body)
    assert answer.status_code < 300, (path, answer.text)
    return answer.json()


async def sh(client: Client, sandbox: str, script: str) -> str:
    answer = await good(client, "POST", f"/v1/sandboxes/{sandbox}/exec", {"command": script})
    return str(answer["stdout"]) + str(answer["stderr"])


async def refused(client: Client, path: str, body: object) -> None:
    answer = await client.post(path, body)
    assert (answer.status_code, answer.json().get("reason")) == (409, "attached"), answer.text


async def until(look: Callable[[], Any], is_so: Callable[[Any], bool], seconds: float = 60.0) -> Any:
    async with asyncio.timeout(seconds):
        while True:
            if is_so(seen := await look()):
                return seen
            await asyncio.sleep(0.05)


async def test_a_volume_stays_with_its_sandbox_until_that_is_destroyed(real: Served) -> None:
    client = real.client
    await good(client, "POST", "/v1/volumes", {"name": "data", "size_mb": 64})
    box = (await good(client, "POST", "/v1/sandboxes", having()))["id"]
    assert (
        await sh(client, box, "echo one > /data/file; echo one > /root/own; sync; cat /data/file") == "one\n"
    )
    kept = (await good(client, "POST", "/v1/volumes/data/snapshots", {}))["id"]
    whole = (await good(client, "POST", f"/v1/sandboxes/{box}/snapshots", {}))["id"]
    await sh(client, box, "echo two > /data/file; echo two > /root/own")
    # Frozen: nobody else gets it, nothing is put back under it, it is there when thawed.
    await good(client, "POST", f"/v1/sandboxes/{box}/freeze")
    await refused(client, "/v1/sandboxes", having())
    await refused(client, "/v1/volumes/data/restore", {"snapshot": kept})
    await good(client, "POST", f"/v1/sandboxes/{box}/thaw")
    assert await sh(client, box, "cat /data/file") == "two\n"
    # Stopped and resumed.
    await good(client, "POST", f"/v1/sandboxes/{box}/stop")
    await refused(client, "/v1/sandboxes", having("ro"))
    await good(client, "POST", f"/v1/sandboxes/{box}/resume")
    assert await sh(client, box, "cat /data/file") == "two\n"
    # The sandbox's own disk is put back; its volume is not.
    await good(client, "POST", f"/v1/snapshots/{whole}/restore")
    assert await sh(client, box, "cat /root/own /data/file") == "one\ntwo\n"
    # The volume is put back while the sandbox is stopped; its own disk is not.
    await sh(client, box, "echo three > /root/own")
    await good(client, "POST", f"/v1/sandboxes/{box}/stop")
    put_back = await good(client, "POST", "/v1/volumes/data/restore", {"snapshot": kept})
    assert put_back["size_mb"] == 64
    await good(client, "POST", f"/v1/sandboxes/{box}/resume")
    assert await sh(client, box, "cat /root/own /data/file") == "three\none\n"
    # Its limit is still its own, and grows under whoever writes.
    assert "quota" in await sh(client, box, "dd if=/dev/zero of=/data/big bs=1M count=80 2>&1; rm /data/big")
    await good(client, "PATCH", "/v1/volumes/data", {"size_mb": 128})
    assert "quota" not in await sh(client, box, "dd if=/dev/zero of=/data/big bs=1M count=80 2>&1")
    smaller = await client.send("PATCH", "/v1/volumes/data", body={"size_mb": 64})
    assert (smaller.status_code, smaller.json()["reason"]) == (409, "too_small")
    # Made anew: a fresh disk of its own, the same volume.
    await good(client, "POST", f"/v1/sandboxes/{box}/recreate")
    assert await sh(client, box, "cat /data/file; test -e /root/own || echo fresh") == "one\nfresh\n"
    await good(client, "DELETE", f"/v1/sandboxes/{box}")
    copy = await good(client, "POST", "/v1/volumes", {"name": "copy", "from_snapshot": kept})
    body = {
        **having("ro"),
        "volumes": [{"volume": v, "path": f"/{v}", "mode": "ro"} for v in ("data", "copy")],
    }
    reader = (await good(client, "POST", "/v1/sandboxes", body))["id"]
    assert await sh(client, reader, "cat /data/file /copy/file") == "one\none\n"
    lines = (await good(client, "GET", "/v1/snapshots/tree"))["lines"]
    assert copy["id"] in next(line for line in lines if line["id"] == kept)["volume_ids"]


async def test_sessions_services_runs_and_clones_have_volumes_too(real: Served) -> None:
    client = real.client
    await good(client, "POST", "/v1/volumes", {"name": "data", "size_mb": 32})
    session = await good(client, "POST", "/v1/sessions", {"language": "python", **having()})
    cell = {"code": "open('/data/file', 'w').write('from a session\\n')"}
    assert (await good(client, "POST", f"/v1/sessions/{session['id']}/cells", cell))["status"] == "ok"
    await refused(client, "/v1/execute", {"language": "bash", "code": "true", "volumes": having()["volumes"]})
    await good(client, "DELETE", f"/v1/sessions/{session['id']}")
    run = {"language": "bash", "code": "cat /data/file; echo more >> /data/file", "disk_mb": 64}
    for lines in (1, 2):
        done = await good(client, "POST", "/v1/execute", {**run, "volumes": having()["volumes"]})
        assert done["stdout"].splitlines() == ["from a session", *["more"] * (lines - 1)], done
    job = await good(client, "POST", "/v1/execute/async", {**run, "volumes": having()["volumes"]})
    look = f"/v1/jobs/{job['id']}?wait_s=30"
    assert (await good(client, "GET", look))["result"]["stdout"].count("more") == 2
    serve = {"name": "files", "command": "cd /data && exec python3 -m http.server $PORT", **having()}
    await until(lambda: client.get("/v1/volumes/data"), lambda seen: not seen.json()["attachments"])
    service = await good(client, "POST", "/v1/services", serve)
    assert (service["state"], len(service["volumes"])) == ("running", 1), service
    box = service["sandbox_id"]
    # Asleep and awake again, and with a new process: it has it still.
    await good(client, "POST", "/v1/services/files/freeze")
    await refused(client, "/v1/sandboxes", having())
    await good(client, "POST", "/v1/services/files/thaw")
    await good(client, "POST", "/v1/services/files/redeploy", {})
    assert "from a session" in await sh(client, box, "cat /data/file")
    kept = (await good(client, "POST", f"/v1/sandboxes/{box}/snapshots", {}))["id"]
    clone = f"/v1/snapshots/{kept}/clone"
    without = await good(client, "POST", clone, SMALL)
    assert without["volumes_left_out"][0]["path"] == "/data"
    assert await sh(client, without["sandboxes"][0]["id"], "ls /data") == ""
    await good(client, "DELETE", "/v1/services/files")
    both = await good(client, "POST", clone, {**having("ro"), "count": 2})
    for one in both["sandboxes"]:
        assert "more" in await sh(client, one["id"], "cat /data/file")


@pytest.fixture
async def dear(tmp_path: Path) -> AsyncIterator[Served]:
    """Where a sandbox costs ten sats a second, and what is kept next to nothing."""
    if why := why_not():
        pytest.skip(why)
    state = tmp_path / "state"
    rates = {"running_msats": 10_000, "vcpu_msats": 0, "memory_gb_msats": 0, "stored_disk_gb_msats": 1}
    settings = Settings(
        state_dir=state,
        port=0,
        images_dir=IMAGES,
        pool_size_mb=500,
        pricing={"rates": rates},
        storage_deposit="1s",
        unpaid_kept="7d",
        grace_window="1s",
        hold_slice="2s",
        limit_bucket_only=10_000,
    )
    try:
        async with serving(settings, None) as running:
            yield running
            for sandbox in (await running.client.get("/v1/sandboxes")).json()["sandboxes"]:
                await running.client.delete(f"/v1/sandboxes/{sandbox['id']}")
    finally:
        if os.path.ismount(state / "pool"):
            await asyncio.to_thread(subprocess.run, ["umount", str(state / "pool")], check=True)


async def test_who_is_reaped_keeps_its_volume_and_wakes_with_it(dear: Served) -> None:
    agent = await funded(dear, "agent", 60)
    await good(agent, "POST", "/v1/volumes", {"name": "data", "size_mb": 32})
    box = (await good(agent, "POST", "/v1/sandboxes", having()))["id"]
    await sh(agent, box, "echo kept > /data/file")

    async def state(path: str) -> str:
        return str((await good(agent, "GET", path))["state"])

    await until(lambda: state(f"/v1/sandboxes/{box}"), lambda seen: seen == "reaped")
    await until(lambda: state("/v1/volumes/data"), lambda seen: seen == "unpaid")
    shown = await good(agent, "GET", "/v1/volumes/data")
    assert [each["sandbox_id"] for each in shown["attachments"]] == [box]
    assert shown["expires_at"] is not None
    credit = {"sats": 5000, "id": "rescue", "reason": "wake up"}
    await good(dear.client, "POST", "/v1/accounts/agent/adjust", credit)
    await until(lambda: state(f"/v1/sandboxes/{box}"), lambda seen: seen == "ready")
    await until(lambda: state("/v1/volumes/data"), lambda seen: seen == "ready")
    assert await sh(agent, box, "cat /data/file; echo more >> /data/file") == "kept\n"


class _Died(Exception):
    """Here the server was killed: nothing after it happens."""


def _let_die(dying: pytest.MonkeyPatch, copies: type[Copies], *, is_after: bool) -> None:
    exchange = copies.swap

    def swap(self: Copies, id_: str) -> None:
        if is_after:
            exchange(self, id_)
        raise _Died

    dying.setattr(copies, "swap", swap)
    dying.setattr(copies, "discard", lambda *_: None)


async def test_a_restore_that_was_cut_short_leaves_what_was_or_what_shall_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_walls()
    with state_folder() as state:
        settings, volume_id, disk_id = settings_for(state, pool_size_mb=500), new_id("vol"), new_id("snp")
        async with open_backend(settings) as opened:
            await opened.make_volume(volume_id, size_mb=32)
            file = opened.dependencies.pool.disk(volume_id) / "upper" / "file"
            file.write_text("old")
            await opened.take_volume(volume_id, disk_id)
            file.write_text("new")
        # Before the exchange, and right after it.
        for is_after, found in ((False, "new"), (True, "old")):
            async with open_backend(settings) as opened:
                with monkeypatch.context() as dying:
                    _let_die(dying, type(opened.dependencies.copies), is_after=is_after)
                    with pytest.raises(_Died):
                        await opened.restore_volume(volume_id, disk_id)
                assert [one for one in os.listdir(opened.dependencies.pool.path) if one.startswith(".birth-")]
            async with open_backend(settings) as opened:
                pool = opened.dependencies.pool.path
                assert not [name for name in os.listdir(pool) if name.startswith(".birth-")]
                assert file.read_text() == found
                assert (await opened.volume_usage(volume_id)).limit_bytes == 32 << 20
        async with open_backend(settings) as opened:
            await clear(opened)
            await opened.drop(disk_id)
            await opened.drop_volume(volume_id)
            assert (opened.dependencies.promised.disk_mb, opened.dependencies.promised.kept_mb) == (0, 0)
        remove_leftovers(opened)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_server_killed_with_9_knows_who_has_which_volume(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    port, state_dir = free_port(), tmp_path / "state"
    up, server = start_server(state_dir, port, pool_mb=700)
    mounts = [{"volume": "data", "path": "/data"}]
    sizes = {"disk_mb": 64, "memory_mb": 128}
    try:
        with Sandboxer(owner_file=up.owner_file, url=up.url) as client:
            for name in ("data", "other"):
                client.volumes.create(name, size_mb=32)
            runs = client.create(volumes=mounts, resources=sizes)
            rests = client.create(volumes=[{"volume": "other", "path": "/other"}], resources=sizes)
            runs.exec("echo before > /data/file; sync")
            rests.exec("echo rests > /other/file; sync")
            rests.stop()
        server.kill()
        server.wait(30)
        up, server = start_server(state_dir, port, pool_mb=700)
        with Sandboxer(owner_file=up.owner_file, url=up.url) as client:
            held = {one.name: [each.sandbox_id for each in one.attachments] for one in client.volumes.list()}
            assert held == {"data": [runs.id], "other": [rests.id]}
            assert (
                client.sandbox(runs.id).exec("cat /data/file; echo after >> /data/file").stdout == "before\n"
            )
            client.sandbox(rests.id).resume()
            assert client.sandbox(rests.id).exec("cat /other/file").stdout == "rests\n"
            client.sandbox(runs.id).destroy()
            ran = client.code.run("cat /data/file", language="bash", volumes=mounts, disk_mb=64)
            assert ran.stdout == "before\nafter\n"
    finally:
        end_everything(up, server)
