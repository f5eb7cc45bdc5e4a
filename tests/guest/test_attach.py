"""A process survives its line: output is kept, bounded, and read again; readers slow it, absence does not."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sandboxer.backends.guest import Command, Exit, Output, Stream
from sandboxer.backends.supervisor.client import SupervisorGuest
from sandboxer.kernel.errors import BackendLost
from tests.support.guest import Box, collect, eventually

RING = 256 * 1024


async def test_a_process_goes_on_after_its_line_was_dropped_and_is_attached_again(box: Box) -> None:
    script = "echo one; read line; echo two $line; exit 5"
    command = Command(argv=["sh", "-c", script], has_stdin=True)
    async with await box.guest.run(command, process_id="prc_a") as process:
        first = await anext(aiter(process.output()))
        assert isinstance(first, Output)
    async with await box.guest.attach("prc_a") as again:
        assert again.pid == process.pid
        await again.write_stdin(b"more\n")
        ran = await collect(again.output())
    assert ran.stdout == b"one\ntwo more\n"
    assert ran.exit == Exit(code=5)
    async with await box.guest.attach("prc_a") as ended:
        assert (await collect(ended.output())).stdout == ran.stdout
    async with await box.guest.attach("prc_a", stdout_from=4) as ended:
        assert (await collect(ended.output())).stdout == b"two more\n"


async def test_output_nobody_reads_is_dropped_from_its_beginning_and_counted(box: Box) -> None:
    size = 1_000_000
    script = f"head -c {size} /dev/zero | tr '\\0' x; echo end; echo err >&2; touch /mnt/done; exec sleep 60"
    async with await box.guest.run(Command(argv=["sh", "-c", script]), process_id="prc_a") as process:
        pass

    async def is_done() -> bool:
        return (box.root / "done").exists()

    await eventually(is_done)
    async with await box.guest.attach("prc_a") as process:
        await process.kill()
        items = [item async for item in process.output()]
    out = [i for i in items if isinstance(i, Output) and i.stream is Stream.STDOUT]
    kept = b"".join(i.data for i in out)
    assert kept.endswith(b"x" * 1000 + b"end\n")
    assert len(kept) == RING
    assert out[0].dropped == size + 4 - RING
    assert sum(i.dropped for i in out) == out[0].dropped
    assert b"".join(i.data for i in items if isinstance(i, Output) and i.stream is Stream.STDERR) == b"err\n"


async def test_a_slow_reader_slows_the_process_and_the_guest_does_not_grow(box: Box) -> None:
    size = 1 << 30
    before = box.memory_kb("Anonymous")
    command = Command(argv=["sh", "-c", f"head -c {size} /dev/zero; echo end > /mnt/written"])
    async with await box.guest.run(command) as process:
        received = 0
        peak = 0
        async for item in process.output():
            if isinstance(item, Exit):
                assert item.code == 0
                break
            if not received:
                await asyncio.sleep(0.3)
                assert not (box.root / "written").exists()
            if received >> 26 != (received + len(item.data)) >> 26:
                peak = max(peak, box.memory_kb("Anonymous"))
            received += len(item.data)
            assert not item.dropped
    assert received == size
    assert peak - before < 1024


async def test_two_readers_see_the_same_output(box: Box) -> None:
    command = Command(argv=["sh", "-c", "read go; seq 1 200000"], has_stdin=True)
    async with (
        await box.guest.run(command, process_id="prc_a") as first,
        await box.guest.attach("prc_a") as second,
    ):
        await first.write_stdin(b"\n")
        async with asyncio.TaskGroup() as group:
            one = group.create_task(collect(first.output()))
            two = group.create_task(collect(second.output()))
    assert one.result() == two.result()
    assert one.result().stdout.endswith(b"\n200000\n")


async def test_what_ended_processes_keep_is_bounded_together(box: Box) -> None:
    for number in range(40):
        command = Command(argv=["sh", "-c", "head -c 300000 /dev/zero"])
        async with await box.guest.run(command, process_id=f"prc_{number}") as process:
            await collect(process.output())
    assert box.memory_kb("Anonymous") < 6 * 1024
    async with await box.guest.attach("prc_39") as process:
        assert len((await collect(process.output())).stdout) == RING
    async with await box.guest.attach("prc_0") as process:
        items = [item async for item in process.output()]
    assert items[0] == Output(Stream.STDOUT, b"", 300000)


async def test_a_command_whose_caller_left_before_it_started_never_starts(box: Box, cgroup: Path) -> None:
    """As when the sandbox is frozen: the child stops on its way into the cgroup."""
    (cgroup / "cgroup.freeze").write_text("1")
    fd = os.open(cgroup / "cgroup.procs", os.O_WRONLY)
    impatient = SupervisorGuest(box.socket_path, answer_s=0.3)
    with pytest.raises(BackendLost):
        await impatient.run(Command(argv=["touch", "/mnt/started"]), process_id="prc_a", cgroup_fd=fd)
    os.close(fd)

    async def is_killed() -> bool:
        return not (cgroup / "cgroup.procs").read_text()

    await eventually(is_killed)
    (cgroup / "cgroup.freeze").write_text("0")
    assert not (box.root / "started").exists()
    await box.guest.ping()
