"""A supervisor that lies: what it can make the host hold is bounded in bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.backends.supervisor.codec import VERSION, Frame, Tag, frame, u32
from sandboxer.backends.supervisor.line import dial
from sandboxer.kernel.errors import GuestMisbehaved, TooLarge

WELCOME = frame(Frame.WELCOME, u32(Tag.VERSION, VERSION))


@contextlib.asynccontextmanager
async def _lying(folder: Path, answer: bytes, times: int) -> AsyncIterator[tuple[str, list[int]]]:
    """Says `answer` again and again to whoever dials, and tells how much of it was taken."""
    acquired = [0]

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            writer.write(WELCOME)
            for _ in range(times):
                writer.write(answer)
                await writer.drain()
                acquired[0] += len(answer)
        writer.close()

    path = str(folder / "sock")
    server = await asyncio.start_unix_server(serve, path)
    try:
        yield path, acquired
    finally:
        server.close()


async def test_a_list_without_end_is_not_kept(tmp_path: Path) -> None:
    item = frame(Frame.PROCESS, b"x" * (256 * 1024))
    async with _lying(tmp_path, item, 4096) as (path, acquired):
        with pytest.raises((GuestMisbehaved, TooLarge)):
            await SupervisorGuest(path).processes()
        assert acquired[0] < 16 << 20, f"{acquired[0]} bytes were taken from a supervisor that lies"


async def test_frames_without_content_are_not_free(tmp_path: Path) -> None:
    async with _lying(tmp_path, frame(Frame.EVENTS) * 10_000, 1000) as (path, acquired):
        line = await dial(path, b"")
        await asyncio.sleep(1)
        held = len(line._frames)
        line.close()
    assert held < 150_000, f"{held} frames are kept for nobody"
    assert acquired[0] < 4 << 20
