"""Watching folders."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.backends.guest import FileChange, FileEvent
from sandboxer.kernel.errors import PathNotFound
from tests.support.guest import Box, no_workers


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def until(events: AsyncIterator[FileEvent], path: str, change: FileChange) -> list[FileEvent]:
    seen: list[FileEvent] = []
    async with asyncio.timeout(5):
        async for event in events:
            seen.append(event)
            if event == FileEvent(path=path, change=change):
                return seen
    raise AssertionError(seen)


async def test_changes_in_a_folder_are_told(box: Box) -> None:
    events = await box.guest.files.watching("/mnt")
    (box.root / "file").write_text("x")
    await until(events, "/mnt/file", FileChange.CREATED)
    await until(events, "/mnt/file", FileChange.MODIFIED)
    (box.root / "file").rename(box.root / "other")
    await until(events, "/mnt/file", FileChange.MOVED)
    await until(events, "/mnt/other", FileChange.CREATED)
    (box.root / "other").unlink()
    await until(events, "/mnt/other", FileChange.REMOVED)


async def test_a_write_through_the_api_shows_the_file_and_not_its_temporary(box: Box) -> None:
    events = await box.guest.files.watching("/mnt")
    await box.guest.files.write("/mnt/file", chunks(b"x"))
    seen = await until(events, "/mnt/file", FileChange.CREATED)
    assert all("sandboxer-tmp" not in event.path for event in seen)


async def test_a_recursive_watch_sees_folders_made_later(box: Box) -> None:
    (box.root / "old").mkdir()
    events = await box.guest.files.watching("/mnt", recursive=True)
    (box.root / "old/file").touch()
    await until(events, "/mnt/old/file", FileChange.CREATED)
    (box.root / "new/sub").mkdir(parents=True)
    (box.root / "new/sub/early").touch()
    await until(events, "/mnt/new/sub/early", FileChange.CREATED)
    (box.root / "new/sub/late").touch()
    await until(events, "/mnt/new/sub/late", FileChange.CREATED)


async def test_a_flood_ends_in_an_overflow_and_not_in_memory(box: Box) -> None:
    events = await box.guest.files.watching("/mnt")
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    ran = await box.run("pkill", "-STOP", "supervisor-io")
    assert ran.exit.code == 0
    for number in range(limit // 2 + 1000):
        path = box.root / str(number % 7)
        path.touch()
        path.unlink()
    await box.run("pkill", "-CONT", "supervisor-io")
    seen = await until(events, "/mnt", FileChange.OVERFLOW)
    assert len(seen) <= limit + 1


async def test_a_watch_ends_with_its_reader_and_refuses_what_is_not_there(box: Box) -> None:
    with pytest.raises(PathNotFound):
        await anext(box.guest.files.watch("/none"))
    events = await box.guest.files.watching("/mnt")
    (box.root / "a").touch()
    await anext(events)
    await events.aclose()  # type: ignore[attr-defined]
    await no_workers(box)
    assert os.listdir(box.root) == ["a"]
