"""Writing a file: all of it or nothing of it, whatever happens on the way."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.kernel.errors import (
    BackendLost,
    DiskFull,
    IsADirectory,
    NotARegularFile,
    PathNotFound,
    PermissionDenied,
)
from tests.support.guest import Box, eventually


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def names(root: Path) -> list[str]:
    return sorted(entry.name for entry in root.iterdir())


async def test_a_file_is_written_with_parents_and_mode(box: Box) -> None:
    info = await box.guest.files.write("/mnt/a/b/file", chunks(b"one", b"", b"two" * 200_000), mode=0o755)
    assert (info.path, info.size, info.mode) == ("/mnt/a/b/file", 600_003, 0o755)
    assert (box.root / "a/b/file").read_bytes() == b"one" + b"two" * 200_000
    assert (await box.guest.files.write("/mnt/empty", chunks())).size == 0
    assert stat.S_IMODE((box.root / "empty").stat().st_mode) == 0o644
    with pytest.raises(PathNotFound):
        await box.guest.files.write("/mnt/x/file", chunks(b"x"), parents=False)


async def test_a_replaced_file_keeps_mode_and_owner(box: Box) -> None:
    (box.root / "file").write_text("old")
    os.chown(box.root / "file", 7, 8)
    os.chmod(box.root / "file", 0o600)
    await box.guest.files.write("/mnt/file", chunks(b"new"))
    info = (box.root / "file").stat()
    assert (info.st_uid, info.st_gid, stat.S_IMODE(info.st_mode)) == (7, 8, 0o600)
    await box.guest.files.write("/mnt/file", chunks(b"new"), mode=0o4755)
    info = (box.root / "file").stat()
    assert (info.st_uid, stat.S_IMODE(info.st_mode)) == (7, 0o4755)


async def test_writing_through_a_link_replaces_what_it_leads_to(box: Box) -> None:
    (box.root / "sub").mkdir()
    (box.root / "sub/real").write_text("old")
    os.symlink("sub/real", box.root / "link")
    await box.guest.files.write("/mnt/link", chunks(b"new"))
    assert (box.root / "link").is_symlink()
    assert (box.root / "sub/real").read_text() == "new"


async def test_what_cannot_be_written_is_told_even_in_the_middle_of_a_long_upload(box: Box) -> None:
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while sent < 1 << 30:
            sent += 1 << 18
            yield bytes(1 << 18)

    with pytest.raises(PermissionDenied):
        await box.guest.files.write("/usr/file", endless())
    assert sent < 1 << 28
    with pytest.raises(IsADirectory):
        await box.guest.files.write("/mnt", chunks(b"x"))
    with pytest.raises(NotARegularFile):
        await box.guest.files.write("/dev/null", chunks(b"x"))
    os.mkfifo(box.root / "fifo")
    with pytest.raises(NotARegularFile):
        await box.guest.files.write("/mnt/fifo", chunks(b"x"))


async def test_a_full_disk_is_told_and_leaves_nothing(box: Box) -> None:
    with pytest.raises(DiskFull):
        await box.guest.files.write("/srv/file", chunks(*[bytes(1 << 18)] * 8))
    assert [info.path async for info in box.guest.files.list("/srv")] == []
    (box.root / "big").write_bytes(bytes(1 << 21))
    with pytest.raises(DiskFull):
        await box.guest.files.move("/mnt/big", "/srv/big")
    assert [info.path async for info in box.guest.files.list("/srv")] == []
    assert names(box.root) == ["big"]


async def test_a_source_that_fails_leaves_the_old_file_and_no_temporary(box: Box) -> None:
    (box.root / "file").write_text("old")

    async def failing() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        raise ValueError("the client vanished")

    with pytest.raises(ValueError, match="vanished"):
        await box.guest.files.write("/mnt/file", failing())

    async def is_clean() -> bool:
        return names(box.root) == ["file"]

    await eventually(is_clean)
    assert (box.root / "file").read_text() == "old"


async def test_a_cancelled_write_leaves_the_old_file_and_no_temporary(box: Box) -> None:
    (box.root / "file").write_text("old")

    async def stalling() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        await asyncio.Event().wait()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await box.guest.files.write("/mnt/file", stalling())

    async def is_clean() -> bool:
        return names(box.root) == ["file"]

    await eventually(is_clean)
    assert (box.root / "file").read_text() == "old"


async def test_a_worker_killed_from_inside_is_a_lost_line_and_the_old_file_stays(box: Box) -> None:
    (box.root / "file").write_text("old")

    async def murderous() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        assert (await box.run("pkill", "-9", "supervisor-io")).exit.code == 0
        yield b"new" * 100_000

    with pytest.raises(BackendLost):
        await box.guest.files.write("/mnt/file", murderous())
    await box.guest.ping()
    assert (box.root / "file").read_text() == "old"
    assert names(box.root) == ["file"]
