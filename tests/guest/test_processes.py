"""Running commands with pipes: what they are given, how they end, how a failed start is told."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

import pytest

from sandboxer.backends.guest import Command, Exit, Output
from sandboxer.kernel.errors import (
    Conflict,
    GuestRefused,
    InvalidRequest,
    NotADirectory,
    NotFound,
    PathNotFound,
    PermissionDenied,
    TooLarge,
)
from tests.support.guest import Box, collect, eventually


async def test_a_command_runs_and_its_streams_and_exit_code_come_back(box: Box) -> None:
    ran = await box.shell("echo out; echo err >&2; exit 7")
    assert (ran.stdout, ran.stderr, ran.exit) == (b"out\n", b"err\n", Exit(code=7))


async def test_death_by_signal_is_told_as_128_plus_signal(box: Box) -> None:
    ran = await box.shell("kill -TERM $$")
    assert ran.exit == Exit(code=143, signal=15)


async def test_the_environment_is_what_was_given_plus_defaults(box: Box) -> None:
    ran = await box.run("env", env={"A": "1", "PATH": "/usr/bin:/bin", "ODD": "é\n="})
    lines = ran.stdout.decode()
    assert "A=1\n" in lines
    assert "PATH=/usr/bin:/bin\n" in lines
    assert "ODD=é\n=\n" in lines
    assert {"HOME=/root", "USER=root", "LANG=C.UTF-8", "TERM=dumb"} <= set(lines.splitlines())
    assert any(line.startswith("SHELL=/bin/") for line in lines.splitlines())


async def test_a_command_leads_its_own_session_with_default_signals_and_no_other_fds(box: Box) -> None:
    ran = await box.shell(
        "ps -o pid=,sid=,pgid= -p $$; ls /proc/self/fd; grep -E 'Sig(Blk|Ign|Cgt)' /proc/self/status"
    )
    lines = ran.stdout.decode().split("\n")
    assert len(set(lines[0].split())) == 1
    # The fourth is that of `ls` on the directory itself.
    assert lines[1:5] == ["0", "1", "2", "3"]
    assert "SigBlk:\t0000000000000000" in lines
    assert "SigIgn:\t0000000000000000" in lines


async def test_children_are_killed_before_the_supervisor_when_memory_is_short(box: Box) -> None:
    ran = await box.shell("cat /proc/self/oom_score_adj; ulimit -c; ulimit -n; umask")
    assert ran.stdout.split() == [b"500", b"0", b"4096", b"0022"]
    assert Path(f"/proc/{box.pid}/oom_score_adj").read_text().strip() == "0"


async def test_a_program_that_does_not_exist_is_an_error_not_exit_127(box: Box) -> None:
    with pytest.raises(PathNotFound) as caught:
        await box.run("no-such-program")
    assert caught.value.facts == {"path": "no-such-program", "errno_name": "ENOENT"}
    with pytest.raises(PermissionDenied):
        await box.run("/etc/passwd")
    assert await box.guest.processes() == []


async def test_a_missing_folder_to_start_in_is_named(box: Box) -> None:
    with pytest.raises(PathNotFound) as caught:
        await box.run("true", cwd="/missing")
    assert caught.value.facts["path"] == "/missing"
    with pytest.raises(NotADirectory):
        await box.run("true", cwd="/etc/passwd")
    assert (await box.run("pwd", cwd="/mnt")).stdout == b"/mnt\n"


async def test_users_come_from_the_sandboxs_own_tables(box: Box) -> None:
    ran = await box.run("id", user="daemon")
    assert b"uid=1(daemon) gid=1(daemon)" in ran.stdout
    by_number = await box.shell("id -u; id -g; echo $HOME", user="12345")
    assert by_number.stdout.split() == [b"12345", b"12345", b"/"]
    with pytest.raises(InvalidRequest):
        await box.run("id", user="nobody-of-that-name")
    capabilities = await box.shell("grep Cap /proc/self/status", user="daemon")
    assert b"CapEff:\t0000000000000000" in capabilities.stdout
    assert b"CapAmb:\t0000000000000000" in capabilities.stdout


async def test_stdin_is_fed_and_its_end_is_seen(box: Box) -> None:
    payload = os.urandom(3 * 1024 * 1024)
    async with await box.guest.run(Command(argv=["cat"], has_stdin=True)) as process:

        async def feed() -> None:
            await process.write_stdin(payload)
            await process.close_stdin()

        async with asyncio.TaskGroup() as group:
            group.create_task(feed())
            read = group.create_task(collect(process.output()))
    assert read.result().stdout == payload
    assert (await box.run("cat")).stdout == b""


async def test_input_for_a_program_that_never_reads_blocks_nobody_else(box: Box) -> None:
    async with await box.guest.run(Command(argv=["sleep", "60"], has_stdin=True)) as process:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await process.write_stdin(bytes(4 * 1024 * 1024))
        await box.guest.ping()
        await process.signal(9)
        ran = await collect(process.output())
    assert ran.exit.signal == 9


@pytest.mark.alone
async def test_exit_does_not_wait_for_children_left_behind_and_they_live_on(box: Box) -> None:
    started = time.monotonic()
    ran = await box.shell("(sleep 0.3; echo late; echo done > /mnt/alive) & echo early")
    assert ran.stdout == b"early\n"
    assert time.monotonic() - started < 0.3

    async def is_written() -> bool:
        return (box.root / "alive").exists()

    # Writing into the pipe of an ended command must not kill them.
    await eventually(is_written)


async def test_all_that_was_printed_before_the_end_arrives_while_others_keep_writing(box: Box) -> None:
    ran = await box.shell("yes noise >&2 & head -c 200000 /dev/zero | tr '\\0' x; kill $!")
    assert ran.stdout == b"x" * 200000


async def test_output_that_never_ends_a_line_arrives_as_it_comes(box: Box) -> None:
    async with await box.guest.run(Command(argv=["sh", "-c", "printf abc; exec sleep 60"])) as process:
        first = await anext(aiter(process.output()))
        assert isinstance(first, Output)
        assert first.data == b"abc"
        await process.kill()


async def test_signals_reach_the_process_and_kill_its_group(box: Box) -> None:
    script = "trap 'echo got it; exit 0' USR1; echo ready; while :; do sleep 0.05; done"
    async with await box.guest.run(Command(argv=["sh", "-c", script])) as process:
        output = process.output()
        assert await anext(aiter(output))
        await process.signal(10)
        assert (await collect(output)).stdout == b"got it\n"
        with pytest.raises(NotFound):
            await process.signal(10)
        await process.kill()  # ended already is success
    with pytest.raises(NotFound):
        await box.guest.attach("prc_unknown")


async def test_orphans_are_reaped(box: Box) -> None:
    await box.shell("for i in 1 2 3 4 5; do (sleep 0.05 & ) ; done")

    async def only_us() -> bool:
        return (
            await box.shell("ps -e -o stat=,comm= | grep -v -E 'supervisor|ps|sh|grep|wc' | wc -l")
        ).stdout == b"0\n"

    await eventually(only_us)


async def test_processes_are_listed_with_their_words_until_forgotten(box: Box) -> None:
    command = Command(argv=["sh", "-c", "exit 4"], tag="build é")
    async with await box.guest.run(command, process_id="prc_a") as process:
        await collect(process.output())
    async with await box.guest.run(Command(argv=["sleep", "60"]), process_id="prc_b") as running:
        listed = {info.process_id: info for info in await box.guest.processes()}
        assert listed["prc_a"].exit == Exit(code=4)
        assert (listed["prc_a"].argv, listed["prc_a"].tag) == (["sh", "-c", "exit 4"], "build é")
        assert listed["prc_b"].exit is None
        assert listed["prc_b"].pid == running.pid
        assert abs(listed["prc_b"].started_at - time.time()) < 5
        with pytest.raises(Conflict):
            await box.guest.forget("prc_b")
        with pytest.raises(Conflict):
            await box.guest.run(Command(argv=["true"]), process_id="prc_a")
        await running.kill()
    await box.guest.forget("prc_a")
    with pytest.raises(NotFound):
        await box.guest.forget("prc_a")
    assert "prc_a" not in [info.process_id for info in await box.guest.processes()]


async def test_only_the_last_ended_processes_are_kept(box: Box) -> None:
    for number in range(80):
        async with await box.guest.run(Command(argv=["true"]), process_id=f"prc_{number}") as process:
            await collect(process.output())
    kept = [info.process_id for info in await box.guest.processes()]
    assert 64 <= len(kept) <= 65
    assert "prc_79" in kept
    assert "prc_0" not in kept
    async with await box.guest.run(Command(argv=["true"]), process_id="prc_x", forget=True) as process:
        await collect(process.output())
    assert "prc_x" not in [info.process_id for info in await box.guest.processes()]


async def test_a_command_enters_the_cgroup_it_is_given_and_keeps_no_door_to_it(
    box: Box, cgroup: Path
) -> None:
    fd = os.open(cgroup / "cgroup.procs", os.O_WRONLY)
    command = Command(argv=["sh", "-c", "ls /proc/self/fd; echo ready; exec sleep 60"])

    async def kill() -> None:
        (cgroup / "cgroup.kill").write_text("1")

    async with await box.guest.run(command, cgroup_fd=fd, on_kill=kill) as process:
        os.close(fd)
        seen = b""
        output = process.output()
        while b"ready" not in seen:
            item = await anext(aiter(output))
            assert isinstance(item, Output)
            seen += item.data
        assert seen.split() == [b"0", b"1", b"2", b"3", b"ready"]
        assert len((cgroup / "cgroup.procs").read_text().split()) == 1
        await process.kill()
        assert (await collect(output)).exit.signal == 9


async def test_no_more_processes_is_a_typed_refusal(box: Box) -> None:
    pids = Path("/sys/fs/cgroup/pids")
    pids = pids if pids.exists() else Path("/sys/fs/cgroup")
    group = pids / f"guest-test-{os.getpid()}"
    group.mkdir()
    try:
        if not (group / "pids.max").exists():
            pytest.skip("no pids controller on this host")
        (group / "cgroup.procs").write_text(str(box.pid))
        (group / "pids.max").write_text("1")
        with pytest.raises(GuestRefused) as caught:
            await box.run("true")
        assert caught.value.facts["errno_name"] == "EAGAIN"
        with pytest.raises(GuestRefused) as caught:
            await box.guest.files.stat("/")
        assert caught.value.facts["errno_name"] == "EAGAIN"
        await box.guest.ping()
        (group / "pids.max").write_text("max")
        assert (await box.run("true")).exit.code == 0
    finally:
        (pids / "cgroup.procs").write_text(str(box.pid))
        group.rmdir()


async def test_a_command_too_large_for_a_frame_is_refused_here(box: Box) -> None:
    with pytest.raises(TooLarge):
        await box.run("true", "x" * 300_000)


async def test_nobody_inside_can_look_into_the_supervisor(box: Box) -> None:
    ran = await box.shell("cat /proc/1/fd/0 /proc/1/environ /proc/1/mem; readlink /proc/1/fd/0 /proc/1/exe")
    assert ran.stdout == b""
    assert ran.stderr.count(b"Permission denied") == 3
    steal = (
        "import os, ctypes; fd = os.pidfd_open(1); libc = ctypes.CDLL(None, use_errno=True);"
        "print(libc.syscall(438, fd, 3, 0), ctypes.get_errno())"  # pidfd_getfd
    )
    ran = await box.run("python3", "-c", steal)
    assert ran.stdout == b"-1 1\n"
    await box.shell("kill -9 1; kill -SEGV 1; kill -STOP 1; kill -CHLD 1")
    await box.guest.ping()
