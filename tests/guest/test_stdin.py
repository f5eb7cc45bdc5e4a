"""Input that was answered for is in the process's pipe: slow readers, closes, cancels, several writers."""

from __future__ import annotations

import asyncio
import hashlib
import os

import pytest

from sandboxer.backends.guest import Command, Exit, TerminalSize
from sandboxer.kernel.errors import Conflict, NotAvailable, NotFound, StdinNotTaken
from tests.support.guest import Box, collect, eventually

SIZE = 240_000
# Reads everything, once a file says so.
LATE = "import hashlib,os,sys,time\nwhile not os.path.exists('/mnt/go'): time.sleep(0.01)\n"
COUNTS = LATE + "d=sys.stdin.buffer.read(); print(len(d), hashlib.sha256(d).hexdigest(), flush=True)"


def python(code: str) -> Command:
    return Command(argv=["python3", "-c", code], has_stdin=True)


def counted(data: bytes) -> bytes:
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}\n".encode()


async def start(box: Box, command: Command) -> str:
    async with await box.guest.run(command) as process:
        return process.process_id


async def output_of(box: Box, process_id: str) -> bytes:
    async with asyncio.timeout(20), await box.guest.attach(process_id) as process:
        return (await collect(process.output())).stdout


async def taken(box: Box, process_id: str) -> int | None:
    found = [info for info in await box.guest.processes() if info.process_id == process_id]
    return found[0].stdin_bytes


async def until_taken(box: Box, process_id: str, least: int) -> None:
    async def enough() -> bool:
        return (await taken(box, process_id) or 0) >= least

    await eventually(enough)


async def waits(task: asyncio.Task[None]) -> None:
    """Fails if it is done within a moment: there is no event for something that does not happen."""
    done, _ = await asyncio.wait({task}, timeout=0.2)
    assert not done, "it was answered before the process read"


@pytest.mark.parametrize("which", ["box", "old_box"])
async def test_a_process_that_reads_late_gets_every_byte_and_the_end(
    which: str, request: pytest.FixtureRequest
) -> None:
    box: Box = request.getfixturevalue(which)
    process_id = await start(box, python(COUNTS))
    data = os.urandom(SIZE)
    pieces = [data[at : at + 40_000] for at in range(0, SIZE, 40_000)]

    async def feed() -> None:
        for piece in pieces:
            await box.guest.feed(process_id, piece)
        await box.guest.feed(process_id, b"", close=True)

    feeding = asyncio.create_task(feed())
    await waits(feeding)
    (box.root / "go").touch()
    async with asyncio.timeout(20):
        await feeding
    assert await output_of(box, process_id) == counted(data)


@pytest.mark.parametrize("which", ["box", "old_box"])
async def test_a_talker_is_fed_although_nobody_reads_what_it_says(
    which: str, request: pytest.FixtureRequest
) -> None:
    box: Box = request.getfixturevalue(which)
    process_id = await start(box, Command(argv=["cat"], has_stdin=True))
    async with asyncio.timeout(20):
        await box.guest.feed(process_id, os.urandom(8 << 20), close=True)
    assert len(await output_of(box, process_id)) > 0


async def test_nothing_is_answered_while_the_process_does_not_read(box: Box) -> None:
    process_id = await start(box, Command(argv=["sleep", "60"], has_stdin=True))
    feeding = asyncio.create_task(box.guest.feed(process_id, bytes(SIZE)))
    await waits(feeding)
    # The supervisor holds no more of it than one frame.
    assert box.memory_kb("Anonymous") < 1024
    held = await taken(box, process_id)
    assert held is not None
    assert 0 < held < SIZE
    feeding.cancel()
    await asyncio.wait({feeding})
    await box.guest.ping()


async def test_a_process_that_ends_tells_how_much_it_took(box: Box) -> None:
    process_id = await start(box, Command(argv=["head", "-c", "10"], has_stdin=True))
    with pytest.raises(StdinNotTaken) as caught:
        async with asyncio.timeout(20):
            await box.guest.feed(process_id, bytes(1 << 20))
    count = caught.value.facts["taken_bytes"]
    assert isinstance(count, int)
    assert 0 < count < 1 << 20
    assert await taken(box, process_id) == count
    with pytest.raises(StdinNotTaken):
        await box.guest.feed(process_id, b"more")
    await box.guest.feed(process_id, b"", close=True)  # closed already is success


async def test_a_closed_stdin_is_told_apart_from_an_ended_process(box: Box) -> None:
    process_id = await start(box, Command(argv=["sh", "-c", "exec <&-; sleep 60"], has_stdin=True))

    async def is_refused() -> bool:
        try:
            await box.guest.feed(process_id, b"x")
        except StdinNotTaken as error:
            return error.facts["reason"] == "closed"
        return False

    await eventually(is_refused)
    none = await start(box, Command(argv=["sleep", "60"]))
    with pytest.raises(StdinNotTaken, match="closed"):
        await box.guest.feed(none, b"x")
    with pytest.raises(NotFound):
        await box.guest.feed("prc_nobody", b"x")


async def test_a_close_waits_for_what_was_written_before_it(box: Box) -> None:
    process_id = await start(box, python(COUNTS))
    data = os.urandom(SIZE)
    writing = asyncio.create_task(box.guest.feed(process_id, data))
    await until_taken(box, process_id, 1)
    closing = asyncio.create_task(box.guest.feed(process_id, b"", close=True))
    await waits(closing)
    (box.root / "go").touch()
    async with asyncio.timeout(20):
        await writing
        await closing
    assert await output_of(box, process_id) == counted(data)


async def test_writers_side_by_side_do_not_mix_their_bytes(box: Box) -> None:
    script = LATE + "sys.stdout.buffer.write(sys.stdin.buffer.read())"
    process_id = await start(box, python(script))
    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        for letter in b"abcdef":
            group.create_task(box.guest.feed(process_id, bytes([letter]) * 100_000))
        await until_taken(box, process_id, 1)
        (box.root / "go").touch()
    async with await box.guest.attach(process_id) as process:
        reading = asyncio.create_task(collect(process.output()))
        await box.guest.feed(process_id, b"", close=True)
        said = (await reading).stdout
    runs = [said[at : at + 100_000] for at in range(0, len(said), 100_000)]
    assert sorted(runs) == [bytes([letter]) * 100_000 for letter in b"abcdef"]


async def test_a_write_that_was_broken_off_is_repeated_without_loss_or_double(box: Box) -> None:
    process_id = await start(box, python(COUNTS))
    data = os.urandom(SIZE)
    for _ in range(5):
        feeding = asyncio.create_task(box.guest.feed(process_id, data, offset=0))
        await until_taken(box, process_id, 1)
        feeding.cancel()
        await asyncio.wait({feeding})
    with pytest.raises(Conflict, match="missing"):
        await box.guest.feed(process_id, b"z", offset=SIZE + 1)
    again = asyncio.create_task(box.guest.feed(process_id, data, offset=0, close=True))
    (box.root / "go").touch()
    async with asyncio.timeout(20):
        await again
    assert await taken(box, process_id) == SIZE
    assert await output_of(box, process_id) == counted(data)


async def test_a_server_that_comes_back_goes_on_where_the_last_one_stopped(box: Box) -> None:
    data = os.urandom(SIZE)
    process = await box.guest.run(python(COUNTS), process_id="prc_mine")
    writing = asyncio.create_task(process.write_stdin(data))
    await until_taken(box, "prc_mine", 1)
    writing.cancel()
    await asyncio.wait({writing})
    process.detach()  # as a server that dies
    async with await box.guest.attach("prc_mine") as found:
        assert found.stdin_bytes is not None
        assert 0 < found.stdin_bytes < SIZE
        (box.root / "go").touch()
        async with asyncio.timeout(20):
            await found.write_stdin(data[found.stdin_bytes :])
            await found.close_stdin()
            assert (await collect(found.output())).stdout == counted(data)


async def test_an_older_guest_refuses_an_offset_and_says_when_it_cannot_know(old_box: Box) -> None:
    # Another process holds the pipe open: one that is closed by its reader's end is, to an older guest, done.
    held = "exec 3<&0; setsid sleep 60 & exec sleep 60"
    process_id = await start(old_box, Command(argv=["sh", "-c", held], has_stdin=True))
    assert await taken(old_box, process_id) is None
    with pytest.raises(NotAvailable, match="older supervisor"):
        await old_box.guest.feed(process_id, b"x", offset=0)
    feeding = asyncio.create_task(old_box.guest.feed(process_id, bytes(SIZE)))
    await waits(feeding)
    async with await old_box.guest.attach(process_id) as process:
        await process.kill()
    with pytest.raises(StdinNotTaken, match="does not say"):
        await feeding


async def test_a_command_of_an_older_guest_gets_its_input_whole(old_box: Box) -> None:
    data = os.urandom(3 << 20)
    said = await old_box.run("sha256sum", stdin=data)
    assert said.stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("mode", ["raw", "lines"])
async def test_a_terminal_that_is_read_late_gets_every_byte(box: Box, mode: str) -> None:
    raw = "import tty; tty.setraw(0)\n" if mode == "raw" else ""
    quiet = "import termios; a=termios.tcgetattr(0); a[3]&=~termios.ECHO; termios.tcsetattr(0,0,a)\n"
    script = quiet + raw + "open('/mnt/set','w').close()\n" + LATE
    script += f"d=b''\nwhile len(d)<{SIZE}: d+=os.read(0,65536)\n"
    script += "print(len(d), hashlib.sha256(d).hexdigest(), flush=True)"
    data = (b"%011d\n" * (SIZE // 12)) % tuple(range(SIZE // 12))
    command = Command(argv=["python3", "-c", script], terminal=TerminalSize(cols=80, rows=24))
    async with await box.guest.run(command) as process:

        async def is_set() -> bool:
            return (box.root / "set").exists()

        await eventually(is_set)
        typing = asyncio.create_task(process.write_stdin(data))
        await waits(typing)
        (box.root / "go").touch()
        async with asyncio.timeout(20):
            ran = await collect(process.output())
            await typing
    assert ran.stdout.split() == counted(data).split()


async def test_the_end_key_of_a_full_terminal_is_pressed_when_there_is_room(box: Box) -> None:
    quiet = "import termios; a=termios.tcgetattr(0); a[3]&=~termios.ECHO; termios.tcsetattr(0,0,a)\n"
    script = quiet + "open('/mnt/set','w').close()\n" + LATE
    script += "n=0\nwhile d:=os.read(0,65536): n+=len(d)\nprint(n, flush=True)"
    command = Command(argv=["python3", "-c", script], terminal=TerminalSize(cols=80, rows=24))
    async with await box.guest.run(command) as process:

        async def is_set() -> bool:
            return (box.root / "set").exists()

        await eventually(is_set)

        async def type_all() -> None:
            await process.write_stdin(b"0123456789\n" * 10_000)
            await process.close_stdin()

        typing = asyncio.create_task(type_all())
        await waits(typing)
        (box.root / "go").touch()
        async with asyncio.timeout(20):
            ran = await collect(process.output())
            await typing
    assert ran.stdout.split() == [b"110000"]


@pytest.mark.slow
async def test_a_gigabyte_goes_through_a_pipe_unharmed(box: Box) -> None:
    process_id = await start(box, Command(argv=["sha256sum"], has_stdin=True))
    piece, sum_ = os.urandom(1 << 20), hashlib.sha256()
    for _ in range(1024):
        await box.guest.feed(process_id, piece)
        sum_.update(piece)
    await box.guest.feed(process_id, b"", close=True)
    assert (await output_of(box, process_id)).split()[0].decode() == sum_.hexdigest()
    assert await taken(box, process_id) == 1 << 30


async def test_an_exit_that_nobody_waits_for_ends_a_writer(box: Box) -> None:
    """A writer on the line of its output hears of the end too."""
    async with await box.guest.run(Command(argv=["true"], has_stdin=True)) as process:

        async def write_on() -> None:
            while True:
                await process.write_stdin(bytes(65536))

        with pytest.raises(StdinNotTaken):
            await asyncio.wait_for(write_on(), 20)
        assert isinstance([item async for item in process.output()][-1], Exit)
