"""Files on real walls, through E2B's own Python SDK."""

from __future__ import annotations

import io
import os
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from e2b.exceptions import FileNotFoundException, InvalidArgumentException

from e2b import FilesystemEvent, FilesystemEventType, FileType, Sandbox
from sandboxer.edges.e2b.multipart import parts
from sandboxer.kernel.errors import InvalidRequest


@pytest.fixture(scope="module")
def sandbox(real_key: str) -> Iterator[Sandbox]:
    with Sandbox.create(timeout=600, allow_internet_access=False) as made:
        yield made


def test_what_is_written_is_read_by_relative_and_whole_paths(sandbox: Sandbox) -> None:
    written = sandbox.files.write("notes/ü a.txt", "text\r\n--x")
    assert (written.path, written.name) == ("/home/user/notes/ü a.txt", "ü a.txt")
    assert sandbox.files.read("/home/user/notes/ü a.txt") == "text\r\n--x"
    assert sandbox.commands.run("cat 'notes/ü a.txt'").stdout == "text\r\n--x"
    assert sandbox.files.read("/proc/version").startswith("Linux")
    sandbox.files.write("empty", "")
    assert sandbox.files.read("empty", format="bytes") == b""


@pytest.mark.parametrize("gzip", [False, True])
@pytest.mark.parametrize("streamed", [False, True])
def test_bytes_come_back_as_they_were(sandbox: Sandbox, gzip: bool, streamed: bool) -> None:
    data = os.urandom(3_000_000) + b"\r\n--" * 1000
    sandbox.files.write("data", io.BytesIO(data) if streamed else data, gzip=gzip)
    assert sandbox.files.read("data", format="bytes") == data
    with sandbox.files.read("data", format="stream") as stream:
        assert b"".join(stream) == data


def test_many_files_are_written_at_once(sandbox: Sandbox) -> None:
    files = [{"path": f"many/{no}", "data": str(no) * no} for no in range(5)]
    written = sandbox.files.write_files(files)  # type: ignore[arg-type]
    assert [one.path for one in written] == [f"/home/user/many/{no}" for no in range(5)]
    for no in range(5):
        assert sandbox.files.read(f"many/{no}") == str(no) * no


def test_a_folder_of_many_files_is_listed_whole_and_in_order(sandbox: Sandbox) -> None:
    """More than a page of the supervisor (10,000), of which E2B's clients know nothing."""
    sandbox.commands.run("mkdir crowd && cd crowd && seq -f 'file-%05g' 12000 | xargs touch", timeout=60)
    sandbox.files.write("crowd/file-07000", "x", metadata={"kind": "last"})
    listed = sandbox.files.list("crowd")
    assert [one.name for one in listed] == [f"file-{no:05}" for no in range(1, 12_001)]
    assert [one.name for one in listed if one.metadata] == ["file-07000"]
    sandbox.commands.run("rm -r crowd")


def test_folders_are_made_listed_moved_and_removed(sandbox: Sandbox) -> None:
    assert sandbox.files.make_dir("tree/a/b") is True
    assert sandbox.files.make_dir("tree/a/b") is False
    sandbox.files.write("tree/a/file", "1234")
    sandbox.commands.run("ln -s a/file tree/link; ln -s nowhere tree/broken")
    listed = {one.name: one for one in sandbox.files.list("tree")}
    assert {name: one.type for name, one in listed.items()} == {
        "a": FileType.DIR,
        "link": FileType.SYMLINK,
        "broken": FileType.SYMLINK,
    }
    assert listed["link"].symlink_target == "/home/user/tree/a/file"
    deep = {one.path.removeprefix("/home/user/tree/") for one in sandbox.files.list("tree", depth=3)}
    assert deep == {"a", "a/b", "a/file", "link", "broken"}
    moved = sandbox.files.rename("tree/a/file", "tree/new/place")
    assert moved.path == "/home/user/tree/new/place"
    assert (moved.size, moved.permissions, moved.owner) == (4, "-rw-r--r--", "user")
    assert not sandbox.files.exists("tree/a/file")
    assert sandbox.files.exists("tree/new/place")
    sandbox.files.remove("tree")
    assert not sandbox.files.exists("tree")
    sandbox.files.remove("tree")


def test_what_is_not_there_or_no_folder_is_said_so(sandbox: Sandbox) -> None:
    for ask in (sandbox.files.read, sandbox.files.list, sandbox.files.get_info, sandbox.files.watch_dir):
        with pytest.raises(FileNotFoundException):
            ask("no/such/thing")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read("/home")
    sandbox.files.write("plain", "x")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.list("plain")


def test_metadata_stays_with_a_file_and_is_seen_inside(sandbox: Sandbox) -> None:
    said = {"author": "ali", "note": "a=b, c"}
    written = sandbox.files.write("said/one", "1", metadata=said)
    assert written.metadata == said
    sandbox.commands.run("ln -s one said/link")
    assert {one.name: one.metadata for one in sandbox.files.list("said")} == {"one": said, "link": said}
    shown = "import os; print(os.getxattr('said/one', 'user.e2b.note').decode())"
    assert sandbox.commands.run(f'python3 -c "{shown}"').stdout == "a=b, c\n"
    # To another file system and back.
    for source, target in (("said/one", "/dev/shm/moved"), ("/dev/shm/moved", "said/two")):
        assert sandbox.files.rename(source, target).metadata == said
    assert sandbox.files.write("said/two", "2").metadata is None
    assert sandbox.files.get_info("said/two").metadata is None
    for wrong in ({"long": "x" * 1025}, {f"k{no}": "x" * 1000 for no in range(5)}, {"k" * 247: ""}):
        with pytest.raises(InvalidArgumentException, match="metadata"):
            sandbox.files.write("said/three", "3", metadata=wrong)
    assert not sandbox.files.exists("said/three")


def test_metadata_that_is_no_text_is_left_out(sandbox: Sandbox) -> None:
    sandbox.files.write("odd", "1", metadata={"plain": "1"})
    odd = "import os; os.setxattr('odd', 'user.e2b.odd', bytes([255])); os.setxattr('odd', 'user.else', b'1')"
    sandbox.commands.run(f'python3 -c "{odd}"')
    assert sandbox.files.get_info("odd").metadata == {"plain": "1"}


def test_changes_are_gathered_until_the_watcher_is_stopped(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("watched/below")
    watcher = sandbox.files.watch_dir("watched", recursive=True)
    sandbox.files.write("watched/below/new", "x")
    seen: list[tuple[str, FilesystemEventType]] = []
    deadline = time.monotonic() + 30
    while not any(name == "below/new" for name, _ in seen):
        assert time.monotonic() < deadline, seen
        seen += [(event.name, event.type) for event in watcher.get_new_events()]
        time.sleep(0.1)  # requests are counted
    watcher.stop()
    with pytest.raises(Exception, match="already stopped"):
        watcher.get_new_events()


def test_what_a_client_writes_is_created_and_written(sandbox: Sandbox) -> None:
    sandbox.files.make_dir("entries")
    watcher = sandbox.files.watch_dir("entries", include_entry=True)
    sandbox.files.write("entries/new", "four")
    seen: list[FilesystemEvent] = []
    deadline = time.monotonic() + 30
    while len(seen) < 3:
        assert time.monotonic() < deadline, seen
        seen += watcher.get_new_events()
    kinds = FilesystemEventType.CREATE, FilesystemEventType.CHMOD, FilesystemEventType.WRITE
    assert [(event.name, event.type) for event in seen] == [("new", kind) for kind in kinds]
    assert [event.entry and (event.entry.path, event.entry.size) for event in seen] == [
        ("/home/user/entries/new", 4)
    ] * 3
    watcher.stop()


@pytest.mark.parametrize("size", [1, 7, 10_000])
async def test_a_form_is_the_same_however_it_is_cut(size: int) -> None:
    head = b'Content-Disposition: form-data; name="file"; filename="%b"\r\n\r\n'
    body = b"--B\r\n" + head % b"a" + b"one\r\n--\r\n--B\r\n" + head % b"b%22" + b"\r\n--B--\r\n"

    async def chunks(whole: bytes) -> AsyncIterator[bytes]:
        for at in range(0, len(whole), size):
            yield whole[at : at + size]

    async def read(whole: bytes) -> dict[str | None, bytes]:
        return {
            part.filename: b"".join([piece async for piece in part.content])
            async for part in parts(chunks(whole), b"B")
        }

    assert await read(body) == {"a": b"one\r\n--", 'b"': b""}
    with pytest.raises(InvalidRequest):
        await read(body[:-9])
