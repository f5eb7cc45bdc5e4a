"""Pseudo terminals: echo, size, control keys, hang-up."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from sandboxer.backends.guest import Command, Exit, Output, TerminalSize
from sandboxer.kernel.errors import Conflict
from tests.support.guest import Box, collect

SIZE = TerminalSize(cols=100, rows=30)


async def until(output: AsyncIterator[Output | Exit], wanted: bytes) -> bytes:
    seen = b""
    while wanted not in seen:
        item = await anext(output)
        assert isinstance(item, Output), (item, seen)
        seen += item.data
    return seen


async def test_a_terminal_echoes_knows_its_size_and_is_resized(box: Box) -> None:
    command = Command(argv=["bash", "--norc", "-i"], terminal=SIZE, env={"PS1": "ready> "})
    async with await box.guest.run(command) as process:
        output = aiter(process.output())
        await until(output, b"ready> ")
        await process.write_stdin(b"stty size; tty; echo $TERM\n")
        seen = await until(output, b"xterm-256color\r\n")
        assert b"stty size" in seen  # the echo
        assert b"30 100\r\n" in seen
        assert b"/dev/pts/" in seen
        await process.resize(TerminalSize(cols=132, rows=50))
        await process.write_stdin(b"stty size\n")
        await until(output, b"50 132\r\n")
        await process.write_stdin(b"exit 3\n")
        assert (await collect(output)).exit == Exit(code=3)


async def test_control_c_interrupts_what_runs_in_front(box: Box) -> None:
    async with await box.guest.run(Command(argv=["cat"], terminal=SIZE)) as process:
        output = aiter(process.output())
        await process.write_stdin(b"up\n")
        await until(output, b"up\r\nup\r\n")
        await process.write_stdin(b"\x03")
        assert (await collect(output)).exit.signal == 2


async def test_the_end_of_input_is_the_key_for_it(box: Box) -> None:
    async with await box.guest.run(Command(argv=["cat"], terminal=SIZE)) as process:
        await process.write_stdin(b"line\n")
        await process.close_stdin()
        assert (await collect(process.output())).stdout == b"line\r\nline\r\n"


async def test_the_last_words_on_a_terminal_are_not_lost(box: Box) -> None:
    for _ in range(20):
        ran = await box.shell("seq 1 3000", terminal=SIZE)
        assert ran.stdout.endswith(b"\r\n3000\r\n")
        assert ran.exit.code == 0


async def test_a_background_child_does_not_hold_the_end_of_a_terminal(box: Box) -> None:
    ran = await box.shell("trap '' HUP; sleep 60 & echo gone", terminal=SIZE)
    assert ran.stdout == b"gone\r\n"


async def test_a_terminal_belongs_to_its_user(box: Box) -> None:
    ran = await box.shell("echo hello > $(tty)", terminal=SIZE, user="daemon")
    assert ran.stdout == b"hello\r\n"


async def test_only_a_terminal_has_a_size(box: Box) -> None:
    async with await box.guest.run(Command(argv=["sleep", "60"])) as process:
        with pytest.raises(Conflict):
            await process.resize(SIZE)
        await process.kill()


async def test_a_terminal_is_attached_again_with_what_it_showed(box: Box) -> None:
    async with await box.guest.run(Command(argv=["cat"], terminal=SIZE), process_id="prc_t") as process:
        await process.write_stdin(b"shown\n")
        await until(aiter(process.output()), b"shown\r\nshown\r\n")
    async with await box.guest.attach("prc_t") as process:
        await until(aiter(process.output()), b"shown\r\nshown\r\n")
        await process.kill()
