"""Looking at files and changing the tree: plain cases, hostile names, hostile kinds."""

from __future__ import annotations

import asyncio
import os
import stat

import pytest

from sandboxer.backends.guest import FileKind
from sandboxer.kernel.errors import (
    DirectoryNotEmpty,
    GuestRefused,
    InvalidRequest,
    IsADirectory,
    NotADirectory,
    NotARegularFile,
    PathExists,
    PathNotFound,
    PermissionDenied,
)
from tests.support.guest import Box, no_workers


async def content(box: Box, path: str, **options: int) -> bytes:
    return b"".join([piece async for piece in box.guest.files.read(path, **options)])


async def test_stat_tells_what_a_path_is(box: Box) -> None:
    (box.root / "file").write_bytes(b"12345")
    os.chmod(box.root / "file", 0o640)
    os.utime(box.root / "file", ns=(0, 1_500_000_000_500_000_000))
    os.symlink("file", box.root / "link")
    files = box.guest.files
    info = await files.stat("/mnt/file")
    assert (info.kind, info.size, info.mode, info.modified_at) == (FileKind.FILE, 5, 0o640, 1_500_000_000.5)
    assert (await files.stat("/mnt/link")).kind is FileKind.FILE
    link = await files.stat("/mnt/link", follow=False)
    assert (link.kind, link.link_target) == (FileKind.SYMLINK, "file")
    assert (await files.stat("/")).kind is FileKind.DIRECTORY
    assert (await files.stat("/dev/null")).kind is FileKind.OTHER
    with pytest.raises(PathNotFound):
        await files.stat("/mnt/none")
    with pytest.raises(NotADirectory):
        await files.stat("/mnt/file/below")
    with pytest.raises(InvalidRequest):
        await files.stat("relative")
    with pytest.raises(InvalidRequest):
        await files.stat("/nul\0byte")
    with pytest.raises(GuestRefused):
        await files.stat("/" + "x" * 5000)


async def test_ranges_are_read_and_the_end_is_the_end(box: Box) -> None:
    data = os.urandom(1_000_000)
    (box.root / "file").write_bytes(data)
    assert await content(box, "/mnt/file") == data
    assert await content(box, "/mnt/file", offset=999_990) == data[-10:]
    assert await content(box, "/mnt/file", offset=5, length=300_000) == data[5:300_005]
    assert await content(box, "/mnt/file", offset=2_000_000) == b""
    assert await content(box, "/mnt/file", length=0) == b""
    assert b"root:" in await content(box, "/etc/passwd")
    assert b"Uid:" in await content(box, "/proc/self/status")


@pytest.mark.parametrize("path", ["/mnt/fifo", "/dev/zero", "/dev/tty", "/dev/ptmx"])
async def test_only_regular_files_are_read(box: Box, path: str) -> None:
    os.mkfifo(box.root / "fifo")
    async with asyncio.timeout(2):
        with pytest.raises(NotARegularFile):
            await content(box, path)


async def test_a_folder_is_not_read_as_a_file(box: Box) -> None:
    with pytest.raises(IsADirectory):
        await content(box, "/mnt")


async def test_a_reader_that_leaves_early_leaves_no_worker_behind(box: Box) -> None:
    (box.root / "big").write_bytes(bytes(20_000_000))
    pieces = box.guest.files.read("/mnt/big")
    await anext(pieces)
    await pieces.aclose()  # type: ignore[attr-defined]
    await no_workers(box)


async def test_ten_thousand_files_are_listed(box: Box) -> None:
    folder = box.root / "many"
    folder.mkdir()
    for number in range(10_000):
        (folder / f"file-{number}").touch()
    paths = {info.path async for info in box.guest.files.list("/mnt/many")}
    assert len(paths) == 10_000
    assert "/mnt/many/file-9999" in paths


async def test_listing_goes_as_deep_as_asked_and_follows_no_link(box: Box) -> None:
    (box.root / "a/b/c").mkdir(parents=True)
    (box.root / "a/b/file").touch()
    os.symlink("/etc", box.root / "a/etc")
    files = box.guest.files
    assert {i.path async for i in files.list("/mnt")} == {"/mnt/a"}
    assert {i.path async for i in files.list("/mnt/", depth=2)} == {"/mnt/a", "/mnt/a/b", "/mnt/a/etc"}
    deep = {i.path: i async for i in files.list("/mnt", depth=9)}
    assert set(deep) == {"/mnt/a", "/mnt/a/b", "/mnt/a/etc", "/mnt/a/b/c", "/mnt/a/b/file"}
    assert deep["/mnt/a/etc"].link_target == "/etc"
    assert "/etc" in {i.path async for i in files.list("/")}
    with pytest.raises(NotADirectory):
        [i async for i in files.list("/etc/passwd")]
    with pytest.raises(PathNotFound):
        [i async for i in files.list("/none")]


async def test_names_with_newlines_and_broken_utf8_survive(box: Box) -> None:
    names = [b"new\nline", b"\xff\xfe broken", b" ", b"-rf", "é☃".encode(), b"x" * 255]
    for name in names:
        (box.root / os.fsdecode(name)).write_bytes(name)
    listed = [info.path async for info in box.guest.files.list("/mnt")]
    assert {os.fsencode(path) for path in listed} == {b"/mnt/" + name for name in names}
    for path in listed:
        assert b"/mnt/" + await content(box, path) == os.fsencode(path)


async def test_folders_are_made_with_their_parents(box: Box) -> None:
    files = box.guest.files
    await files.mkdir("/mnt/a/b/c", mode=0o700)
    assert stat.S_IMODE((box.root / "a/b/c").stat().st_mode) == 0o700
    assert stat.S_IMODE((box.root / "a/b").stat().st_mode) == 0o755
    await files.mkdir("/mnt/a/b/c")
    with pytest.raises(PathExists):
        await files.mkdir("/mnt/a/b/c", parents=False)
    with pytest.raises(PathNotFound):
        await files.mkdir("/mnt/x/y", parents=False)
    (box.root / "file").touch()
    with pytest.raises(NotADirectory):
        await files.mkdir("/mnt/file/below")
    with pytest.raises(PermissionDenied):
        await files.mkdir("/usr/new")


async def test_moving_replaces_only_when_told(box: Box) -> None:
    files = box.guest.files
    (box.root / "a").write_text("a")
    (box.root / "b").write_text("b")
    with pytest.raises(PathExists) as caught:
        await files.move("/mnt/a", "/mnt/b")
    assert caught.value.facts["path"] == "/mnt/b"
    await files.move("/mnt/a", "/mnt/b", overwrite=True)
    assert (box.root / "b").read_text() == "a"
    assert not (box.root / "a").exists()
    with pytest.raises(PathNotFound):
        await files.move("/mnt/a", "/mnt/c")
    (box.root / "d").mkdir()
    with pytest.raises(GuestRefused) as caught:
        await files.move("/mnt/d", "/mnt/d/inside")
    assert caught.value.facts["errno_name"] == "EINVAL"


async def test_moving_across_file_systems_carries_the_tree(box: Box) -> None:
    files = box.guest.files
    tree = box.root / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub/file").write_bytes(os.urandom(100_000))
    data = (tree / "sub/file").read_bytes()
    os.chmod(tree / "sub/file", 0o751)
    os.chown(tree / "sub/file", 7, 8)
    os.symlink("sub/file", tree / "link")
    await files.move("/mnt/tree", "/tmp/tree")
    assert not tree.exists()
    info = await files.stat("/tmp/tree/sub/file")
    assert (info.mode, info.uid, info.gid) == (0o751, 7, 8)
    assert (await files.stat("/tmp/tree/link", follow=False)).link_target == "sub/file"
    assert await content(box, "/tmp/tree/sub/file") == data
    with pytest.raises(PathExists):
        await files.move("/tmp/tree", "/mnt")
    assert list(box.root.iterdir()) == []


async def test_removal_follows_no_link_and_is_recursive_only_when_told(box: Box) -> None:
    files = box.guest.files
    (box.root / "keep").mkdir()
    (box.root / "keep/file").touch()
    (box.root / "tree/sub").mkdir(parents=True)
    (box.root / "tree/sub/file").touch()
    os.symlink("../keep", box.root / "tree/link")
    os.symlink("keep", box.root / "link")
    with pytest.raises(DirectoryNotEmpty):
        await files.remove("/mnt/tree")
    await files.remove("/mnt/tree", recursive=True)
    await files.remove("/mnt/link", recursive=True)
    assert not (box.root / "tree").exists()
    assert (box.root / "keep/file").exists()
    with pytest.raises(PathNotFound):
        await files.remove("/mnt/tree", recursive=True)
    with pytest.raises(GuestRefused):
        await files.remove("/", recursive=True)


async def test_a_tree_deeper_than_any_path_is_listed_and_removed(box: Box) -> None:
    await box.run(
        "python3", "-c", "import os\nos.chdir('/mnt')\nfor i in range(3000): os.mkdir('d'); os.chdir('d')"
    )
    assert len([i async for i in box.guest.files.list("/mnt", depth=100)]) == 100
    await box.guest.files.remove("/mnt/d", recursive=True)
    assert list(box.root.iterdir()) == []
