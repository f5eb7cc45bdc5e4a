"""`shell` through a real pseudo terminal: keys, size changes, exit code, detaching and coming back."""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.cli import PROGRAM, Cli
from tests.support.platforms import (
    destroy_everything,
    free_port,
    remove_leftovers,
    served_once,
    start_server,
    why_not_real,
)


class Screen:
    """Our end of the user's terminal."""

    def __init__(self, master: int, process: subprocess.Popen[bytes]) -> None:
        self._master = master
        self.process = process
        self.seen = b""

    def type(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def wait_for(self, text: bytes, timeout_s: float = 20.0) -> bytes:
        """Reads until `text` appears; what was read up to its end is forgotten."""
        deadline = time.monotonic() + timeout_s
        while text not in self.seen:
            ready, _, _ = select.select([self._master], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{text!r} did not appear in {self.seen!r}"
            try:
                self.seen += os.read(self._master, 65536)
            except OSError:
                raise AssertionError(f"the terminal closed after {self.seen!r}") from None
        before, _, self.seen = self.seen.partition(text)
        return before

    def resize(self, cols: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def end(self) -> int:
        return self.process.wait(20)


@contextmanager
def screen(cli: Cli, *words: str) -> Iterator[Screen]:
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    environment = {name: value for name, value in cli.environment.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*PROGRAM, *words], stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
    )
    os.close(slave)
    try:
        yield Screen(master, process)
    finally:
        process.kill()
        process.wait()
        os.close(master)


def test_keys_go_in_output_comes_out_and_the_exit_code_is_the_shells(
    real_cli: Cli, real_sandbox: Sandbox
) -> None:
    with screen(real_cli, "shell", real_sandbox.id) as terminal:
        terminal.wait_for(b"# ")
        terminal.type(b"echo $((6*7))mark; tty\r")
        terminal.wait_for(b"42mark")
        terminal.wait_for(b"/dev/pts/")
        terminal.type(b"exit 9\r")
        assert terminal.end() == 9


def test_the_terminals_size_is_ours_and_follows_changes(real_cli: Cli, real_sandbox: Sandbox) -> None:
    with screen(real_cli, "shell", real_sandbox.id) as terminal:
        terminal.wait_for(b"# ")
        terminal.type(b"stty size; echo a=b | tr = +\r")
        terminal.wait_for(b"30 100")
        terminal.wait_for(b"a+b")
        terminal.resize(120, 40)
        deadline = time.monotonic() + 10
        while True:
            terminal.type(b"echo [$(stty size)]\r")
            said = terminal.wait_for(b"]\r\n")
            if b"[40 120" in said:
                break
            assert time.monotonic() < deadline, said
        terminal.type(b"exit\r")
        assert terminal.end() == 0


def test_ctrl_c_goes_inside_and_does_not_end_us(real_cli: Cli, real_sandbox: Sandbox) -> None:
    with screen(real_cli, "shell", real_sandbox.id) as terminal:
        terminal.wait_for(b"# ")
        # Said by the foreground process itself: one that the shell is about to start would miss Ctrl-C.
        terminal.type(b"sh -c 'echo go=on | tr = +; exec sleep 600'\r")
        terminal.wait_for(b"go+on")
        terminal.type(b"\x03")
        terminal.type(b"echo still=here | tr = +\r")
        terminal.wait_for(b"still+here")
        terminal.type(b"exit 0\r")
        terminal.end()


def test_detaching_leaves_the_program_and_attaching_finds_it(real_cli: Cli, real_sandbox: Sandbox) -> None:
    with screen(real_cli, "shell", real_sandbox.id) as terminal:
        terminal.wait_for(b"# ")
        terminal.type(b"word=kept; echo ready=now | tr = +\r")
        terminal.wait_for(b"ready+now")
        terminal.type(b"\x1d")
        terminal.wait_for(b"back with")
        assert terminal.end() == 0
    (left,) = real_cli("terminal", "list", real_sandbox.id, "--json").items
    terminal_id = left["terminal_id"]
    with screen(real_cli, "shell", real_sandbox.id, "--attach", terminal_id) as terminal:
        terminal.type(b"echo $word=again | tr = +\r")
        terminal.wait_for(b"kept+again")
        terminal.type(b"exit 5\r")
        assert terminal.end() == 5


def test_shell_goes_back_to_the_terminal_that_was_left_and_says_how_to_leave(
    real_cli: Cli, real_sandbox: Sandbox, tmp_path: Path
) -> None:
    cli = Cli(real_cli.environment | {"SANDBOXER_CONFIG_DIR": str(tmp_path)})
    with screen(cli, "shell", real_sandbox.id[:20]) as terminal:
        terminal.wait_for(b"Ctrl-] leaves")
        terminal.wait_for(b"# ")
        terminal.type(b"word=kept; echo ready=now | tr = +\r")
        terminal.wait_for(b"ready+now")
        # While it is in use here, another window gets a terminal of its own.
        with screen(cli, "shell", real_sandbox.id) as other:
            other.wait_for(b"# ")
            other.type(b"echo [$word] | tr [ +\r")
            other.wait_for(b"+]")
            other.type(b"exit\r")
            assert other.end() == 0
        terminal.type(b"\x1d")
        assert terminal.end() == 0
    with screen(cli, "shell", real_sandbox.id) as terminal:
        terminal.wait_for(b"back in the terminal")
        terminal.type(b"echo $word=again | tr = +\r")
        terminal.wait_for(b"kept+again")
        terminal.type(b"\x1d")
        assert terminal.end() == 0
    with screen(cli, "shell", real_sandbox.id, "--new") as terminal:
        terminal.wait_for(b"# ")
        terminal.type(b"echo [$word] | tr [ +\r")
        terminal.wait_for(b"+]")
        terminal.type(b"exit 3\r")
        assert terminal.end() == 3
    running = [one for one in real_sandbox.terminal.list() if one.running]
    assert len(running) == 1
    with screen(cli, "shell", real_sandbox.id) as terminal:
        terminal.wait_for(b"back in the terminal")
        terminal.type(b"exit 4\r")
        assert terminal.end() == 4
    # It has ended: there is nothing to go back to.
    with screen(cli, "shell", real_sandbox.id) as terminal:
        assert b"back in" not in terminal.wait_for(b"# ")
        terminal.type(b"exit\r")
        terminal.end()


def test_without_a_terminal_shell_says_what_to_use_instead(cli: Cli, sandbox: Sandbox) -> None:
    said = cli("shell", sandbox.id)
    assert said.code == 1
    assert "exec" in said.err


def test_a_shell_goes_on_when_the_platform_was_started_again(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    state, port = tmp_path / "state", free_port()
    try:
        up, server = start_server(state, port, pool_mb=1536)
        cli = Cli(up.environment)
        made = cli("create", "--profile", "profile.agent-dev", "--json").json
        with screen(cli, "shell", made["id"]) as terminal:
            terminal.wait_for(b"# ")
            terminal.type(b"word=kept\r")
            terminal.wait_for(b"# ")
            # As an upgrade would: the server ends, its sandboxes and our shell do not.
            server.terminate()
            server.wait(20)
            with served_once(state, port, pool_mb=1536) as again:
                type_until(terminal, b"echo $word=again | tr = +\r", b"kept+again")
                terminal.type(b"exit 6\r")
                assert terminal.end() == 6
                destroy_everything(again)
    finally:
        remove_leftovers(state)


def type_until(terminal: Screen, keys: bytes, expected: bytes) -> None:
    """Keys typed while the line is down are lost, as on any line: type again."""
    for _ in range(40):
        terminal.type(keys)
        try:
            terminal.wait_for(expected, timeout_s=1.0)
            return
        except AssertionError:
            continue
    raise AssertionError(f"{expected!r} did not appear in {terminal.seen!r}")


def test_a_tree_is_drawn_anew_as_it_changes_until_ctrl_c(cli: Cli) -> None:
    """Within 80 columns; programs get a line for each change, and without a terminal nothing can be drawn."""
    first = cli("create", "--name", "first-of-the-tree", "--inception", "slots=1", "--json").json["id"]
    try:
        with screen(cli, "tree", "--watch") as terminal:
            terminal.resize(80, 30)
            terminal.wait_for(b"first-of-the-tree")
            second = cli("create", "--json").json["id"]
            drawn = terminal.wait_for(second[:12].encode(), 30)
            assert (
                max(len(re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", line)) for line in drawn.splitlines()) <= 80
            )
            terminal.process.send_signal(signal.SIGINT)
            assert terminal.end() == 0
            cli("delete", second)
        words = [*PROGRAM, "tree", "--watch", "--json"]
        with subprocess.Popen(words, env=cli.environment, stdout=subprocess.PIPE, text=True) as watching:
            assert watching.stdout is not None
            before = json.loads(watching.stdout.readline())["items"]
            third = cli("create", "--json").json["id"]
            shown = (json.loads(line)["items"] for line in watching.stdout)
            after = next(found for found in shown if third in {one["id"] for one in found})
            watching.send_signal(signal.SIGINT)
        cli("delete", third)
        assert first in {one["id"] for one in before} & {one["id"] for one in after}
        refused = cli("tree", "--watch")
        assert (refused.code, "sandboxer tree --watch --json" in refused.err) == (1, True)
    finally:
        cli("delete", first)
