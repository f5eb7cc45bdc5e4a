"""Checks of files: whole, odd, many, and never half written."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from sandboxer.backends.checks.suite import Bench, Suite, expect, refused, until
from sandboxer.backends.contract import Wall
from sandboxer.backends.guest import FileChange, FileInfo, FileKind, Files
from sandboxer.kernel.errors import (
    DirectoryNotEmpty,
    DiskFull,
    InvalidRequest,
    IsADirectory,
    NotARegularFile,
    PathExists,
    PathNotFound,
)

suite = Suite()
# Bytes that are not UTF-8 travel as surrogate escapes.
ODD_NAMES = ("with space", "line\nbreak", "-dash", "ünï", "broken-\udcff\udc80", "*", "a" * 255)


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


async def whole(files: Files, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
    return b"".join([part async for part in files.read(path, offset=offset, length=length)])


async def names(files: Files, path: str, *, depth: int = 1) -> dict[str, FileInfo]:
    return {info.path: info async for info in files.list(path, depth=depth)}


@suite.check("files are carried in and out")
async def what_was_written_is_read_back(bench: Bench) -> None:
    async with bench.files() as (_, files):
        block = bytes(range(256)) * 4096
        info = await files.write("/root/data", chunks(block, b"", block, b"end"))
        expect(info.size == 2 * len(block) + 3 and info.kind is FileKind.FILE, f"the answer was {info}")
        expect(await whole(files, "/root/data") == block + block + b"end", "other bytes came back")
        await files.write("/root/empty", chunks())
        expect(await whole(files, "/root/empty") == b"", "an empty file is not empty")


@suite.check("files belong to whom they are written for")
async def what_is_written_for_a_user_is_theirs_with_its_folders(bench: Bench) -> None:
    async with bench.files() as (_, files):
        info = await files.write("/tmp/for/nobody/data", chunks(b"1"), owner="nobody")
        expect(info.uid == 65534, f"the file belongs to {info.uid}")
        await files.mkdir("/tmp/for/nobody/folder", owner="nobody")
        for path in ("/tmp/for", "/tmp/for/nobody", "/tmp/for/nobody/folder"):
            expect((await files.stat(path)).uid == 65534, f"{path} does not")
        info = await files.write("/tmp/for/nobody/data", chunks(b"2"), owner="root")
        expect(info.uid == 0, f"after a write for root it belongs to {info.uid}")
        for_nobody_known = files.write("/tmp/for/nobody/data", chunks(b"3"), owner="no-such-user")
        await refused(for_nobody_known, InvalidRequest)
        expect(await whole(files, "/tmp/for/nobody/data") == b"2", "a refused write has changed it")


@suite.check("what is said about files stays with them")
async def attributes_of_a_file_are_told_to_who_asks_and_move_with_it(bench: Bench) -> None:
    async with bench.files() as (_, files):
        said = {"user.note.by": "ali", "user.note.at": "home=here", "user.other": "1"}
        await files.write("/root/said/file", chunks(b"1"), attributes=said)
        told = (await files.stat("/root/said/file", attributes="user.note.")).attributes
        expect(told == {"user.note.by": b"ali", "user.note.at": b"home=here"}, f"it told {told}")
        expect(not (await files.stat("/root/said/file")).attributes, "nobody had asked")
        await files.move("/root/said/file", "/root/said/moved")
        page = await files.list_page("/root/said", limit=10, attributes="user.other")
        expect([one.attributes for one in page.files] == [{"user.other": b"1"}], f"a page had {page.files}")
        await files.write("/root/said/moved", chunks(b"2"))
        told = (await files.stat("/root/said/moved", attributes="user.")).attributes
        expect(not told, f"what replaced it has {told}")


@suite.check("large folders are listed in pages")
async def pages_of_a_folder_meet_in_the_order_of_bytes(bench: Bench) -> None:
    async with bench.files() as (_, files):
        for name in ("b", "a/x", "a!", "a0", "c"):
            await files.write(f"/root/pages/{name}", chunks(b"1"))
        found: list[str] = []
        after: bytes | None = None
        while True:
            page = await files.list_page("/root/pages", depth=2, after=after, limit=2)
            expect(len(page.files) <= 2, f"{len(page.files)} files in a page of 2")
            found += [info.path.removeprefix("/root/pages/") for info in page.files]
            if page.next_after is None:
                break
            after = page.next_after
        expect(found == ["a", "a!", "a/x", "a0", "b", "c"], f"they were {found}")


@suite.check("large files are read in parts")
async def a_range_of_a_file_is_that_range(bench: Bench) -> None:
    async with bench.files() as (_, files):
        await files.write("/root/data", chunks(b"0123456789"))
        expect(await whole(files, "/root/data", offset=3, length=4) == b"3456", "the middle is wrong")
        expect(await whole(files, "/root/data", offset=8, length=100) == b"89", "the end is wrong")
        expect(await whole(files, "/root/data", offset=50) == b"", "past the end there is something")


@suite.check("a broken upload must not eat the old file")
async def an_aborted_write_leaves_the_old_file(bench: Bench) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        raise ConnectionError("the client vanished")

    async with bench.files() as (_, files):
        await files.write("/root/data", chunks(b"old"))
        await refused(files.write("/root/data", broken()), ConnectionError)
        expect(await whole(files, "/root/data") == b"old", "the old file is gone")
        await asyncio.sleep(0.1)
        left = set(await names(files, "/root"))
        expect({path for path in left if "data" in path} == {"/root/data"}, f"left behind: {left}")


@suite.check("programs see what callers wrote, and the other way round")
async def commands_and_files_see_the_same_disk(bench: Bench) -> None:
    async with bench.files() as (box, files):
        await files.write("/root/in", chunks(b"from outside\n"))
        expect((await box.run("cat /root/in")).stdout == b"from outside\n", "the command sees something else")
        await box.run("echo from inside > /root/out")
        expect(await whole(files, "/root/out") == b"from inside\n", "the caller sees something else")


@suite.check("nobody wants to make folders one by one")
async def folders_on_the_way_are_made_only_if_asked_for(bench: Bench) -> None:
    async with bench.files() as (_, files):
        await files.write("/root/a/b/c", chunks(b"x"))
        expect((await files.stat("/root/a/b")).kind is FileKind.DIRECTORY, "no folder was made")
        await refused(files.write("/root/x/y", chunks(b"x"), parents=False), PathNotFound)
        await refused(files.mkdir("/root/x/y", parents=False), PathNotFound)


@suite.check("scripts must stay executable and secrets private")
async def the_mode_asked_for_is_the_mode_it_has(bench: Bench) -> None:
    async with bench.files() as (_, files):
        await files.write("/root/key", chunks(b"x"), mode=0o600)
        await files.write("/root/run", chunks(b"x"), mode=0o755)
        expect((await files.stat("/root/key")).mode == 0o600, "the key is not private")
        expect((await files.stat("/root/run")).mode == 0o755, "the script is not executable")


@suite.check("links are shown, and followed only when asked")
async def a_link_is_told_from_what_it_points_to(bench: Bench) -> None:
    async with bench.files() as (box, files):
        await files.write("/root/target", chunks(b"12345"))
        await box.run("ln -s target /root/link; ln -s /nowhere /root/dangling")
        expect((await files.stat("/root/link")).size == 5, "the link was not followed")
        seen = await files.stat("/root/link", follow=False)
        expect(seen.kind is FileKind.SYMLINK and seen.link_target == "target", f"the link is {seen}")
        await refused(files.stat("/root/dangling"), PathNotFound)


@suite.check("a tree is looked at level by level")
async def a_list_goes_as_deep_as_asked(bench: Bench) -> None:
    async with bench.files() as (_, files):
        await files.write("/root/tree/a/b", chunks(b"x"))
        expect(set(await names(files, "/root/tree")) == {"/root/tree/a"}, "depth 1 shows something else")
        deep = set(await names(files, "/root/tree", depth=5))
        expect(deep == {"/root/tree/a", "/root/tree/a/b"}, f"depth 5 shows {deep}")


@suite.check("node_modules exists")
async def a_folder_of_ten_thousand_files_is_listed_whole(bench: Bench) -> None:
    async with bench.box() as box:
        numbers = " ".join(str(number) for number in range(10_000))
        await box.run("mkdir -p /root/many; cd /root/many; touch $SEQ", env={"SEQ": numbers})
        expect(len(await names((await box.guest()).files, "/root/many")) == 10_000, "some are missing")


@suite.check("names are bytes, and people are creative")
async def odd_names_work_everywhere(bench: Bench) -> None:
    async with bench.files() as (_, files):
        for name in ODD_NAMES:
            path = f"/root/odd/{name}"
            await files.write(path, chunks(b"x"))
            expect(await whole(files, path) == b"x", f"{name!r} cannot be read")
            expect((await files.stat(path)).path == path, f"{name!r} is told otherwise")
        listed = set(await names(files, "/root/odd"))
        expect(listed == {f"/root/odd/{name}" for name in ODD_NAMES}, f"the list shows {listed}")
        for name in ODD_NAMES:
            await files.move(f"/root/odd/{name}", "/root/odd/moved", overwrite=True)
            await files.remove("/root/odd/moved")


@suite.check("each slip has its own answer")
async def reading_what_is_no_file_is_refused_at_once(bench: Bench) -> None:
    async with bench.files() as (box, files):
        await box.run("mkfifo /root/fifo")
        await refused(whole(files, "/root/none"), PathNotFound)
        await refused(whole(files, "/root"), IsADirectory, NotARegularFile)
        async with asyncio.timeout(5):
            await refused(whole(files, "/root/fifo"), NotARegularFile)


@suite.check("nothing is lost by a slip")
async def move_and_remove_take_no_more_than_asked(bench: Bench) -> None:
    async with bench.files() as (_, files):
        await files.write("/root/d/a", chunks(b"a"))
        await files.write("/root/d/b", chunks(b"b"))
        await refused(files.move("/root/d/a", "/root/d/b"), PathExists)
        await files.move("/root/d/a", "/root/d/b", overwrite=True)
        expect(await whole(files, "/root/d/b") == b"a", "the move did not replace")
        await refused(files.move("/root/d/a", "/root/d/c"), PathNotFound)
        await refused(files.remove("/root/d"), DirectoryNotEmpty)
        await files.remove("/root/d", recursive=True)
        await refused(files.stat("/root/d"), PathNotFound)
        await refused(files.remove("/root/d"), PathNotFound)


@suite.check("making a folder twice is what scripts do")
async def making_a_folder_that_exists_is_success_only_with_parents(bench: Bench) -> None:
    async with bench.files() as (_, files):
        await files.mkdir("/root/a/b")
        await files.mkdir("/root/a/b")
        await refused(files.mkdir("/root/a/b", parents=False), PathExists)


@suite.check("editors want to know")
async def a_watch_tells_what_changes(bench: Bench) -> None:
    async with bench.files() as (box, files):
        await files.mkdir("/root/watched")
        seen: set[tuple[str, FileChange]] = set()

        async def watch() -> None:
            async for event in files.watch("/root/watched"):
                seen.add((event.path, event.change))
                if event.change is FileChange.REMOVED:
                    return

        watching = asyncio.ensure_future(watch())
        try:
            # The watch is in place when it tells of the first change: make changes until it does.
            async with asyncio.timeout(10):
                while not watching.done():
                    await box.run("echo x > /root/watched/file; rm /root/watched/file")
                await watching
        finally:
            watching.cancel()
        expect(any(path == "/root/watched/file" for path, _ in seen), f"seen were {seen}")


@suite.check("one tenant must not fill the disk of all")
async def a_full_disk_is_said_to_be_full(bench: Bench) -> None:
    if Wall.DISK not in (await bench.backend.fingerprint()).walls:
        return

    async def zeros() -> AsyncIterator[bytes]:
        for _ in range(100):
            yield bytes(2**20)

    async with bench.box(bench.sized_order(disk_mb=48)) as box:
        files = (await box.guest()).files
        await refused(files.write("/root/big", zeros()), DiskFull)

        async def has_room() -> bool:
            try:
                await files.write("/root/small", chunks(b"still works"))
            except DiskFull:
                return False
            return True

        # A file system may give room back only with its next commit.
        await until(has_room, "what the failed write took was not given back", within_s=20)
