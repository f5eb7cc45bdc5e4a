"""Downloads and clients that do not stay to the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message

from sandboxer.edges.http.bodies import Download
from sandboxer.edges.http.disconnection import ClientGone


async def test_a_client_that_goes_away_ends_its_download() -> None:
    closed = asyncio.Event()
    begun = asyncio.Event()

    async def endless() -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(0)
                yield b"x"
        finally:
            closed.set()

    async def receive() -> Message:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        # As the server does it: after the client has gone, sending succeeds and does nothing.
        begun.set()

    download = Download(endless(), headers={}, media_type="application/x-tar")
    async with asyncio.timeout(5):
        with pytest.raises(ClientGone):
            await download({"type": "http"}, receive, send)
    assert closed.is_set()


async def test_what_a_file_grew_by_meanwhile_is_left_out() -> None:
    async def growing() -> AsyncIterator[bytes]:
        yield b"whole l"
        yield b"ine\nand ano"
        raise AssertionError("more was read than was said")

    sent: list[Message] = []

    async def receive() -> Message:
        return await asyncio.Future()

    async def send(message: Message) -> None:
        sent.append(message)

    download = Download(growing(), headers={}, media_type="text/plain", length=11)
    async with asyncio.timeout(5):
        await download({"type": "http"}, receive, send)
    assert dict(sent[0]["headers"])[b"content-length"] == b"11"
    assert b"".join(one["body"] for one in sent[1:]) == b"whole line\n"
    assert sent[-1]["more_body"] is False
