"""What strangers send that is no request: it is refused like one, counted, and nothing of it is logged."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from sandboxer.access.connections import Patience
from tests.support.http.served import Served, eventually
from tests.support.http.signed import target

RESET = struct.pack("ii", 1, 0)
UPGRADE = {
    "host": "127.0.0.1",
    "connection": "Upgrade",
    "upgrade": "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": base64.b64encode(os.urandom(16)).decode(),
}
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that serves: it does not write where nobody is any more."""
    return {"uvloop": uvloop.new_event_loop}


async def _sent(served: Served, data: bytes) -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(served.url.rsplit(":", 1)[1]))
    writer.write(data)
    return reader, writer


async def _answer(served: Served, data: bytes) -> tuple[int, dict[str, Any]]:
    """The answer to what ends its connection."""
    reader, writer = await _sent(served, data)
    async with asyncio.timeout(10):
        said = await reader.read()
    writer.close()
    head, _, body = said.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body or b"{}")


def _request(line: str, head: dict[str, str]) -> bytes:
    return "\r\n".join([line, *(f"{name}: {value}" for name, value in head.items()), "", ""]).encode()


def _masked(opcode: int, payload: bytes) -> bytes:
    return bytes([0x80 | opcode, 0x80 | len(payload)]) + b"\0\0\0\0" + payload


async def test_a_method_that_nobody_knows_is_refused_like_every_other_bad_head(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = _count_refusals(served, monkeypatch)
    data = _request("BREW / HTTP/1.1", {"host": "x"})
    for more in (b"", _request("GET /health HTTP/1.1", {"host": "x"})):
        status, problem = await _answer(served, data + more)
        assert (status, problem["code"]) == (400, "bad_request")
    assert len(refused) == 2
    upgrade = {"host": "x", "connection": "Upgrade, close", "upgrade": "h2c"}
    assert (await _answer(served, _request("GET /health HTTP/1.1", upgrade)))[0] == 200
    assert not [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]


@pytest.mark.parametrize("where", ["target", "header"])
async def test_an_upgrade_with_a_long_line_is_told_so(
    served: Served, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = _count_refusals(served, monkeypatch)
    query, more = ("?x=" + "x" * 9000, {}) if where == "target" else ("", {"x-long": "x" * 9000})
    status, problem = await _answer(served, _request(f"GET /health{query} HTTP/1.1", {**UPGRADE, **more}))
    assert (status, problem["code"]) == (431, "bad_request")
    assert len(refused) == 1


FRAMES = {
    "text": _masked(0x1, b"hello"),
    "close": _masked(0x8, b""),
    "ping": _masked(0x9, b"ping"),
    "unmasked": b"\x81\x05hello",
    "many": _masked(0x1, b"x" * 100) * 200,
}


@pytest.mark.parametrize("frames", FRAMES.values(), ids=FRAMES)
async def test_frames_before_the_answer_to_an_upgrade_do_not_break_its_refusal(
    served: Served, caplog: pytest.LogCaptureFixture, frames: bytes
) -> None:
    path = "/v1/sandboxes/x/terminal"
    status, problem = await _answer(served, _request(f"GET {path} HTTP/1.1", UPGRADE) + frames)
    assert (status, problem["code"]) == (401, "unauthenticated")
    assert not [one for one in caplog.records if one.levelname in ("WARNING", "ERROR")]


async def test_frames_before_the_answer_are_read_when_the_upgrade_is_accepted(served: Served) -> None:
    where = target(f"{await served.sandbox()}/terminal", command="cat")
    head = {**UPGRADE, **served.client.credentials.head("GET", where)}
    data = _request(f"GET {where} HTTP/1.1", head)
    reader, writer = await _sent(served, data + _masked(0x9, b"x" * 100) * 200)
    async with asyncio.timeout(10):
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        # The newest ping is answered at last; of the others as many as fit.
        await reader.readuntil(b"x" * 100)
        writer.write(_masked(0x9, b"the last"))
        await reader.readuntil(b"the last")
    writer.close()


async def test_who_hangs_up_before_the_answer_to_head_breaks_nothing(served: Served) -> None:
    failures: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, failure: failures.append(failure))
    for _ in range(20):
        reader, writer = await _sent(served, _request("HEAD /health HTTP/1.1", {"host": "x"}) * 20)
        await reader.readuntil(b"\r\n\r\n")
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        writer.transport.abort()
        assert (await served.client.http.get("/health")).status_code == 200
    assert not failures


@pytest.mark.parametrize("requests", [1, 10])
async def test_who_asks_for_more_without_reading_is_sent_away(served: Served, requests: int) -> None:
    assert (await served.client.http.get("/openapi.json")).status_code == 200
    front, loop = served.platform.front, asyncio.get_running_loop()
    front.patience = Patience(reader_s=1.0, idle_s=3.0)
    before = set(front.slots)
    with socket.socket() as unread:
        # One of the answers does not fit into what the kernels hold.
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.setblocking(False)
        await loop.sock_connect(unread, ("127.0.0.1", int(served.url.rsplit(":", 1)[1])))
        await loop.sock_sendall(unread, _request("GET /openapi.json HTTP/1.1", {"host": "x"}) * requests)
        await eventually(lambda: bool(front.slots - before), seconds=5)
        await eventually(lambda: not front.slots - before, seconds=10)


def _count_refusals(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    refused: list[object] = []
    count = served.platform.front.refused
    monkeypatch.setattr(served.platform.front, "refused", lambda slot: (refused.append(slot), count(slot)))
    return refused
