"""Places to import an image: of one's own, paid for, and not kept by sending slowly."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import pytest

from sandboxer.edges.http import authentication
from sandboxer.kernel.errors import InsufficientCredit
from tests.support.http.served import Served, eventually
from tests.support.http.signed import Client

IMPORT = "/v1/images/import?name="


async def _begin(served: Served, client: Client, name: str) -> asyncio.StreamWriter:
    """An import whose body does not come."""
    target = IMPORT + name
    head = client.credentials.head("POST", target, "0" * 64) | {"host": "x", "content-length": "1000000"}
    lines = [f"POST {target} HTTP/1.1", *(f"{key}: {value}" for key, value in head.items()), "", "x"]
    _, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rsplit(":", 1)[1]))
    writer.write("\r\n".join(lines).encode())
    return writer


@contextlib.asynccontextmanager
async def _silent(served: Served, client: Client, count: int) -> AsyncIterator[None]:
    writers = [await _begin(served, client, f"silent{n}") for n in range(count)]
    await asyncio.sleep(0.3)
    yield
    for writer in writers:
        writer.close()


async def test_two_sockets_do_not_keep_everybody_from_importing(served: Served) -> None:
    one, other = await served.stranger("one"), await served.stranger("other")
    async with _silent(served, one, 4):
        # Looked at, and refused for what it is: there was a place for it.
        answer = await other.send("POST", IMPORT + "mine", content=b"no tar" * 200)
        assert answer.status_code == 422, answer.text
        again = await one.send("POST", IMPORT + "more", content=b"no tar" * 200)
        assert again.status_code == 429, again.text
        assert again.json()["fault"] == "caller"

    deadline = time.monotonic() + 10
    while (await one.send("POST", IMPORT + "more", content=b"no tar" * 200)).status_code != 422:
        assert time.monotonic() < deadline, "its own place never came back"


async def test_who_cannot_pay_for_an_image_sends_none(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked before the body is read; what an account needs is money's to say."""
    asked: list[str] = []

    async def refuse(self: object, account: str, profile: str) -> None:
        asked.append(account)
        raise InsufficientCredit(required=1, available=0)

    monkeypatch.setattr(type(served.platform.artifacts.images.repository), "demand_funds", refuse)
    client = await served.stranger("poor")
    writer = await _begin(served, client, "x")
    await eventually(lambda: asked == ["poor"])
    writer.close()


async def test_an_upload_that_drips_is_ended(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "UPLOAD_PATIENCE_S", 0.5)
    client = await served.stranger("slow")
    path = f"/v1/sandboxes/{(await client.post('/v1/sandboxes', {})).json()['id']}"
    target = f"{path}/files/content?path=%2Fworkspace%2Fx"
    head = client.credentials.head("PUT", target, "0" * 64) | {"host": "x", "content-length": "1000000"}
    lines = [f"PUT {target} HTTP/1.1", *(f"{key}: {value}" for key, value in head.items()), "", ""]
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rsplit(":", 1)[1]))
    writer.write("\r\n".join(lines).encode())
    for _ in range(200):
        writer.write(b"x")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.05):
                answer = await reader.readline()
                break
    assert b" 408 " in answer
    writer.close()
