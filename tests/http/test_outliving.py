"""Nothing is committed for a key that ended meanwhile, and nothing outlasts the key that began it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time

import pytest

from tests.support.http.accounts import funded
from tests.support.http.served import Served, eventually
from tests.support.http.signed import Client

WITHIN_S = 2.0


async def _begin(
    served: Served, client: Client, method: str, target: str, body: bytes, **more: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The signed head of a request, and nothing of its body."""
    head = client.credentials.head(method, target, hashlib.sha256(body).hexdigest())
    head |= {"host": "x", "content-length": str(len(body)), **more}
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items()), "", ""]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rsplit(":", 1)[1]), limit=1024)
    writer.write("\r\n".join(lines).encode())
    return reader, writer


async def _box(served: Served) -> tuple[Client, str]:
    team = await funded(served, "team")
    made = await team.post("/v1/sandboxes", {})
    return team, f"/v1/sandboxes/{made.json()['id']}"


async def _revoke(served: Served, client: Client) -> None:
    done = await served.client.delete(f"/v1/keys/{client.credentials.public_key}")
    assert done.status_code in (200, 204), done.text


@pytest.mark.parametrize("pause_s", [0.0, 1.5])
async def test_an_upload_is_not_committed_after_its_key_was_revoked(served: Served, pause_s: float) -> None:
    team, path = await _box(served)
    where = "/files/content?path=%2Fworkspace%2Fx"
    reader, writer = await _begin(served, team, "PUT", path + where, b"hello")
    writer.write(b"hell")
    await asyncio.sleep(0.2)
    await _revoke(served, team)
    await asyncio.sleep(pause_s)
    with contextlib.suppress(ConnectionError):
        writer.write(b"o")
        await writer.drain()
    async with asyncio.timeout(5):
        answer = await reader.readline()
    assert b" 401 " in answer or b" 403 " in answer, answer
    assert (await served.client.get(path + where)).status_code == 404
    writer.close()


async def test_a_body_that_was_held_back_is_refused_after_its_key_was_revoked(served: Served) -> None:
    team, path = await _box(served)
    body = json.dumps({"path": "/workspace/made"}).encode()
    kind = {"content-type": "application/json"}
    reader, writer = await _begin(served, team, "POST", f"{path}/files/mkdir", body, **kind)
    await asyncio.sleep(0.2)
    await _revoke(served, team)
    writer.write(body)
    async with asyncio.timeout(5):
        answer = await reader.readline()
    assert b" 401 " in answer or b" 403 " in answer, answer
    assert (await served.client.get(f"{path}/files/stat?path=%2Fworkspace%2Fmade")).status_code == 404
    writer.close()


async def test_a_download_ends_with_its_key(served: Served) -> None:
    team, path = await _box(served)
    where = f"{path}/files/content?path=%2Fworkspace%2Flarge"
    assert (await team.put(where, b"x" * (32 << 20))).status_code == 200
    reader, writer = await _begin(served, team, "GET", where, b"")
    got = len(await reader.read(1024))
    await asyncio.sleep(0.2)
    await _revoke(served, team)
    await asyncio.sleep(WITHIN_S)
    with contextlib.suppress(ConnectionError):
        async with asyncio.timeout(10):
            while piece := await reader.read(1 << 16):
                got += len(piece)
    assert got < 32 << 20, "all of it was sent"
    writer.close()


@pytest.mark.parametrize("query", ["", "?stream=true"])
async def test_a_command_ends_with_its_key_however_it_was_asked_for(served: Served, query: str) -> None:
    team, path = await _box(served)
    body = json.dumps({"command": "sleep 60"}).encode()
    kind = {"content-type": "application/json"}
    reader, writer = await _begin(served, team, "POST", f"{path}/exec{query}", body, **kind)
    writer.write(body)
    await asyncio.sleep(0.5)
    await _revoke(served, team)
    began = time.monotonic()
    async with asyncio.timeout(10):
        answer = b""
        while not (b"unauthenticated" in answer or b"forbidden" in answer):
            piece = await reader.read(1024)
            assert piece, answer
            answer += piece
    assert time.monotonic() - began < WITHIN_S
    writer.close()


async def test_what_a_request_held_is_given_back(served: Served) -> None:
    path = await served.sandbox()
    answer = await served.client.post(f"{path}/exec", {"command": "cat", "stdin": "x" * 1_000_000})
    assert answer.json()["stdout"] == "x" * 1_000_000
    await eventually(lambda: served.platform.budget.held() == 0)


async def test_who_holds_too_much_is_told_whose_fault_it_is(served: Served) -> None:
    path = await served.sandbox()
    budget = served.platform.budget
    for holder, status, fault in (("owner", 429, "caller"), ("another", 503, "platform")):
        with contextlib.ExitStack() as held:
            full = budget.bounds.host_bytes if holder == "another" else budget.bounds.account_bytes
            names = [holder] if holder == "owner" else [f"{holder}{n}" for n in range(8)]
            for name in names:
                with contextlib.suppress(Exception):
                    held.enter_context(budget.lease(name)).grow_at_once(
                        min(full, budget.bounds.account_bytes)
                    )
            answer = await served.client.post(f"{path}/exec", {"command": "cat", "stdin": "x" * 1_000_000})
        assert answer.status_code == status, answer.text
        assert answer.json()["fault"] == fault
        assert int(answer.headers["retry-after"]) > 0
    assert budget.held() == 0
