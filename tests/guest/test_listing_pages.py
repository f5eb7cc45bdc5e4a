"""Folders are listed in pages that the guest sorts: each costs the host a page, whatever the folder holds."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from sandboxer.backends.guest import FileInfo
from sandboxer.backends.supervisor.codec import Frame, Tag, field, frame, text, u32
from sandboxer.backends.supervisor.line import dial
from sandboxer.kernel.errors import NotADirectory, PathNotFound
from tests.support.guest import Box

# Bytes below and above '/', names that are no UTF-8, and one name that begins like another.
NAMES = [b"a", b"a!", b"a/b", b"a/b/c", b"a0", b"a.txt", b"z", b"\xff\xfe", b"~", b"%", b"a/z", b"\xc3\xbc"]


async def pages(box: Box, path: str, *, limit: int, depth: int = 1) -> list[list[FileInfo]]:
    found: list[list[FileInfo]] = []
    after: bytes | None = None
    while True:
        page = await box.guest.files.list_page(path, depth=depth, after=after, limit=limit)
        assert len(page.files) <= limit
        found.append(list(page.files))
        if page.next_after is None:
            return found
        after = page.next_after


def tree(root: Path) -> list[bytes]:
    """Everything below, as the guest names it, in the order of bytes."""
    made = []
    for folder, folders, files in os.walk(os.fsencode(root)):
        made += [os.path.join(folder, name) for name in folders + files]
    return sorted(b"/mnt" + path[len(os.fsencode(root)) :] for path in made)


@pytest.mark.parametrize("which", ["box", "old_box"])
@pytest.mark.parametrize("limit", [1, 2, 5, 100])
async def test_pages_meet_and_are_in_the_order_of_bytes(
    which: str, limit: int, request: pytest.FixtureRequest
) -> None:
    box: Box = request.getfixturevalue(which)
    for name in NAMES:
        target = Path(os.fsdecode(os.fsencode(box.root) + b"/" + name))
        if name in (b"a", b"a/b"):
            target.mkdir(parents=True, exist_ok=True)
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.touch()
    found = await pages(box, "/mnt", limit=limit, depth=100)
    assert [os.fsencode(info.path) for page in found for info in page] == tree(box.root)
    flat = [os.fsencode(info.path) for page in await pages(box, "/mnt", limit=limit) for info in page]
    assert flat == [path for path in tree(box.root) if path.count(b"/") == 2]


async def test_a_page_tells_of_kinds_sizes_and_links_and_refuses_what_is_no_folder(box: Box) -> None:
    (box.root / "file").write_bytes(b"12345")
    (box.root / "folder").mkdir()
    (box.root / "link").symlink_to("file")
    (page,) = await pages(box, "/mnt", limit=10)
    reported = [(info.path, info.kind.value, info.link_target) for info in page]
    assert reported == [
        ("/mnt/file", "file", None),
        ("/mnt/folder", "directory", None),
        ("/mnt/link", "symlink", "file"),
    ]
    assert page[0].size == 5
    with pytest.raises(NotADirectory):
        await box.guest.files.list_page("/mnt/file", limit=10)
    with pytest.raises(PathNotFound):
        await box.guest.files.list_page("/mnt/none", limit=10)
    assert [len(page) for page in await pages(box, "/mnt/folder", limit=3)] == [0]


async def test_paths_too_long_for_one_call_are_in_the_page_too(box: Box) -> None:
    deep = "import os; os.chdir('/mnt')\nfor _ in range(30): os.mkdir('d' * 200); os.chdir('d' * 200)\n"
    made = await box.run("python3", "-c", deep + "open('end', 'w').close()")
    assert made.exit.code == 0, made.stderr
    found = [info for page in await pages(box, "/mnt", limit=7, depth=100) for info in page]
    assert len(found) == 31
    assert found[-1].path.endswith("/end")
    assert len(found[-1].path) > 6000


async def test_a_page_of_long_names_ends_early_and_the_next_goes_on(box: Box) -> None:
    """4 MiB of paths are a page, whatever number was asked for."""
    deep = "/mnt/" + "/".join(["x" * 250] * 14)
    made = await box.shell(f"mkdir -p {deep} && cd {deep} && seq -f 'f%05.0f' 3000 | xargs touch")
    assert made.exit.code == 0, made.stderr
    found = await pages(box, deep, limit=10_000)
    assert len(found) > 1
    assert [info.path for page in found for info in page] == [f"{deep}/f{n:05}" for n in range(1, 3001)]


async def test_only_the_page_is_sent(box: Box) -> None:
    assert (await box.shell("cd /mnt && seq 20000 | xargs touch")).exit.code == 0
    payload = text(Tag.PATH, "/mnt") + u32(Tag.DEPTH, 1) + u32(Tag.LIMIT, 10) + field(Tag.AFTER, b"/mnt/19")
    line = await dial(box.socket_path, frame(Frame.LISTDIR, payload))
    sizes = []
    while (answer := await line.next(20))[0] == Frame.ENTRIES:
        sizes.append(len(answer[1]))
    line.close()
    assert sum(sizes) < 4096


@pytest.mark.alone
async def test_a_page_of_a_large_folder_takes_little_of_our_own_time(box: Box) -> None:
    assert (await box.shell("cd /mnt && seq -f 'file-%06.0f' 150000 | xargs touch")).exit.code == 0
    own, began = time.process_time(), time.perf_counter()
    page = await box.guest.files.list_page("/mnt", limit=500)
    own, took = time.process_time() - own, time.perf_counter() - began
    print(f"\n500 of 150,000 files: {took * 1000:.0f} ms, {own * 1000:.1f} ms of them ours")
    assert len(page.files) == 500
    assert own < 0.1
