"""Checks of running commands: their ends, streams, signals, and what is kept of them."""

from __future__ import annotations

import asyncio
import signal

from sandboxer.backends.checks.suite import Bench, Suite, at_once, collect, expect, refused
from sandboxer.backends.guest import Command, Exit, Output, TerminalSize
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound, PathNotFound, StdinNotTaken

suite = Suite()
# A loop that leaves its parent and session, and can be told alive from dead by its file.
BEAT = "i=0; while true; do i=$((i+1)); echo $i > /tmp/beat; sleep 0.02; done"


@suite.check("a command that fails is not an error of ours")
async def exit_codes_are_the_command_s_own(bench: Bench) -> None:
    async with bench.box() as box:
        for code in (0, 1, 7, 127, 255):
            ended = (await box.run(f"exit {code}")).exit
            expect(ended.code == code and ended.signal is None, f"exit {code} became {ended}")


@suite.check("callers parse stdout")
async def stdout_and_stderr_stay_apart_and_whole(bench: Bench) -> None:
    async with bench.box() as box:
        ran = await box.run("echo out; echo err >&2; printf 'no newline'")
        expect(ran.stdout == b"out\nno newline", f"stdout was {ran.stdout!r}")
        expect(ran.stderr == b"err\n", f"stderr was {ran.stderr!r}")


@suite.check("output is bytes, not text")
async def binary_output_is_not_touched(bench: Bench) -> None:
    async with bench.box() as box:
        ran = await box.run(r"printf 'a\000\377\n'")
        expect(ran.stdout == b"a\0\xff\n", f"stdout was {ran.stdout!r}")


@suite.check("data is piped into commands")
async def stdin_reaches_the_command_and_ends(bench: Bench) -> None:
    async with bench.box() as box:
        for data in (b"", b"hello\n", b"\0\xff" * 100_000):
            ran = await box.run(("cat",), stdin=data)
            expect(ran.stdout == data, f"{len(data)} bytes in, {len(ran.stdout)} out")


@suite.check("input that was answered for has arrived, once, however often it was sent")
async def a_process_is_fed_by_others_than_its_reader(bench: Bench) -> None:
    async with bench.guest() as (_, guest):
        async with await guest.run(Command(argv=("cat",), has_stdin=True), process_id="prc_fed") as process:
            for offset in (0, 0, 2):
                await guest.feed("prc_fed", b"abcd"[offset:], offset=offset)
            await refused(guest.feed("prc_fed", b"x", offset=5), Conflict)
            await guest.feed("prc_fed", b"e", close=True)
            ran = await collect(process.output())
            expect(ran.stdout == b"abcde", f"it read {ran.stdout!r}")
            await refused(guest.feed("prc_fed", b"f"), StdinNotTaken)
        info = next(one for one in await guest.processes() if one.process_id == "prc_fed")
        expect(info.stdin_bytes == 5, f"{info.stdin_bytes} bytes were counted")


@suite.check("a command that reads must not hang when nobody writes")
async def without_stdin_a_reader_sees_the_end(bench: Bench) -> None:
    async with bench.box() as box:
        expect((await box.run("cat; echo done")).stdout == b"done\n", "cat did not end")


@suite.check("nothing of the host's environment may show")
async def the_environment_is_exactly_what_was_given(bench: Bench) -> None:
    value = "two\nlines ü = $HOME"
    async with bench.box() as box:
        ran = await box.run('echo "$GIVEN"', env={"GIVEN": value})
        expect(ran.stdout.decode() == value + "\n", f"it was {ran.stdout!r}")
        printed = (await box.run(("env",), env={"GIVEN": "1"})).stdout.split()
        names = {line.partition(b"=")[0].decode() for line in printed}
        allowed = {"GIVEN", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "SHLVL", "_", "TERM", "LANG"}
        expect("GIVEN" in names and names <= allowed, f"the environment has {sorted(names - allowed)}")


@suite.check("paths are relative to where one works")
async def the_working_directory_is_the_one_asked_for(bench: Bench) -> None:
    async with bench.box() as box:
        expect((await box.run("pwd", cwd="/tmp")).stdout == b"/tmp\n", "pwd said otherwise")
        await refused(box.run("pwd", cwd="/no/such/folder"), PathNotFound)


@suite.check("not everything should run as root inside")
async def a_command_runs_as_the_user_asked_for(bench: Bench) -> None:
    async with bench.box() as box:
        expect((await box.run("id -un")).stdout == b"root\n", "the default user is not root")
        expect((await box.run("id -un", user="nobody")).stdout == b"nobody\n", "nobody is somebody else")
        expect(
            (await box.run("id -u", user="65534")).stdout == b"65534\n", "a numeric user is not understood"
        )
        await refused(box.run("true", user="no-such-user"), InvalidRequest)


@suite.check("a missing program is the caller's slip, told apart from ours")
async def a_program_that_does_not_exist_is_named(bench: Bench) -> None:
    async with bench.box() as box:
        await refused(box.run(("/no/such/program",)), PathNotFound)
        expect((await box.run("no-such-program")).exit.code == 127, "the shell did not say 127")


@suite.check("callers end commands politely first")
async def a_signal_ends_the_process_and_shows_in_its_exit(bench: Bench) -> None:
    async with bench.guest() as (_, guest), await guest.run(Command(argv=("sleep", "1000"))) as process:
        await process.signal(signal.SIGTERM)
        ended = (await collect(process.output())).exit
        expect(ended.code == 143 and ended.signal == signal.SIGTERM, f"it ended as {ended}")


@suite.check("a timeout must end all that a command started, wherever it fled to")
async def kill_ends_children_that_left_their_parent_and_session(bench: Bench) -> None:
    async with bench.guest() as (box, guest):
        script = f"(setsid sh -c '{BEAT}' &) ; sleep 1000"
        argv = ("/bin/sh", "-c", script)
        async with await guest.run(Command(argv=argv, env={"PATH": "/usr/bin:/bin"})) as process:
            await box.wait_for_file("/tmp/beat", "the child never began")
            await process.kill()
            ended = (await collect(process.output())).exit
            expect(ended.code == 137, f"it ended as {ended}")
        await asyncio.sleep(0.2)
        before = (await box.run("cat /tmp/beat")).stdout
        await asyncio.sleep(0.3)
        expect((await box.run("cat /tmp/beat")).stdout == before, "a child outlived the kill")


@suite.check("logs are large")
async def large_output_arrives_whole_and_in_order(bench: Bench) -> None:
    async with bench.box() as box:
        ran = await box.run("seq 1 300000")
        expect(
            ran.stdout == b"".join(b"%d\n" % n for n in range(1, 300_001)), f"{len(ran.stdout)} bytes came"
        )


@suite.check("a stream is for watching while it happens")
async def output_arrives_while_the_command_runs(bench: Bench) -> None:
    command = Command(argv=("/bin/sh", "-c", "echo now; sleep 1000"))
    async with bench.guest() as (_, guest), await guest.run(command) as process:
        async for item in process.output():
            expect(isinstance(item, Output) and item.data == b"now\n", f"first came {item}")
            break
        await process.kill()


@suite.check("clients vanish and come back")
async def attaching_again_shows_what_was_printed_meanwhile(bench: Bench) -> None:
    async with bench.guest() as (_, guest):
        script = "echo first; read line; echo $line; exit 5"
        argv = ("/bin/sh", "-c", script)
        async with await guest.run(Command(argv=argv, has_stdin=True), process_id="prc_again") as process:
            expect(process.process_id == "prc_again", "the id asked for was not used")
        async with await guest.attach("prc_again") as process:
            await process.write_stdin(b"second\n")
            ran = await collect(process.output())
            expect(ran.stdout == b"first\nsecond\n", f"attached, it printed {ran.stdout!r}")
            expect(ran.exit.code == 5, f"it ended as {ran.exit}")
        async with await guest.attach("prc_again") as process:
            expect((await collect(process.output())).exit.code == 5, "an ended process forgot its exit")


@suite.check("a chatty process nobody listens to must not grow without end, nor stop")
async def unread_output_is_bounded_and_says_what_it_lost(bench: Bench) -> None:
    async with bench.guest() as (box, guest):
        argv = ("/bin/sh", "-c", "seq 1 2000000; echo end > /tmp/end")
        async with await guest.run(
            Command(argv=argv, env={"PATH": "/usr/bin:/bin"}), process_id="prc_chatty"
        ):
            pass
        await box.wait_for_file("/tmp/end", "a process that nobody reads was stopped", within_s=30)
        kept = lost = 0
        async with await guest.attach("prc_chatty") as process:
            async for item in process.output():
                if isinstance(item, Output):
                    kept, lost = kept + len(item.data), max(lost, item.dropped)
        expect(0 < kept < 14_888_896, f"{kept} bytes were kept")
        expect(lost > 0, "nothing was reported as lost")


@suite.check("a list of processes tells what runs and what ended how")
async def processes_are_listed_until_they_are_forgotten(bench: Bench) -> None:
    async with bench.guest() as (_, guest):
        async with await guest.run(Command(argv=("sleep", "1000"), tag="a tag"), process_id="prc_runs"):
            pass
        async with await guest.run(
            Command(argv=("/bin/sh", "-c", "exit 3")), process_id="prc_ended"
        ) as process:
            await collect(process.output())
        listed = {info.process_id: info for info in await guest.processes()}
        expect(set(listed) == {"prc_runs", "prc_ended"}, f"listed are {sorted(listed)}")
        expect(
            listed["prc_runs"].exit is None and listed["prc_runs"].tag == "a tag", "the running one is wrong"
        )
        expect(listed["prc_ended"].exit == Exit(code=3), f"the ended one is {listed['prc_ended'].exit}")
        await guest.forget("prc_ended")
        expect(len(await guest.processes()) == 1, "it was not forgotten")


@suite.check("an id may be wrong")
async def a_process_that_does_not_exist_is_not_found(bench: Bench) -> None:
    async with bench.guest() as (_, guest):
        await refused(guest.attach("prc_never"), NotFound)
        await refused(guest.forget("prc_never"), NotFound)


@suite.check("shells want a terminal")
async def a_terminal_is_a_terminal_of_the_size_asked_for(bench: Bench) -> None:
    async with bench.box() as box:
        ran = await box.run("stty size", terminal=TerminalSize(cols=101, rows=37))
        expect(ran.stdout.strip() == b"37 101", f"stty said {ran.stdout!r}")


@suite.check("agents run many things at a time")
async def many_commands_run_at_once(bench: Bench) -> None:
    async with bench.box() as box:
        printed = await at_once(box.text(f"sleep 0.05; echo {n}") for n in range(20))
    expect(printed == [b"%d\n" % n for n in range(20)], f"they printed {printed}")
