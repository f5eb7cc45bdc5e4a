"""`shell`: a real terminal in a sandbox. Ours is raw; size changes follow; a lost line is picked up again."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import SandboxId, StateDir, Url, client
from sandboxer.edges.cli.output import err
from sandboxer.kernel.late import late
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.sdk.sync.terminal import Session

# Windows has neither.
if TYPE_CHECKING:
    import termios
    import tty
else:
    termios, tty = late("termios"), late("tty")

app = typer.Typer(rich_markup_mode="rich")
# Ctrl-], as in telnet: rarely typed, and it reaches us even when everything inside hangs.
DETACH = b"\x1d"
REATTACH_FOR_S = 30.0


@app.command("shell")
def shell(
    sandbox_id: SandboxId,
    command: Annotated[
        str | None, typer.Option("--command", help="Program instead of a login shell.")
    ] = None,
    attach: Annotated[str | None, typer.Option("--attach", help="Go back to this terminal.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Folder to start in.")] = None,
    user: Annotated[str | None, typer.Option(help="User inside (default root).")] = None,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Open a terminal in a sandbox. Ctrl-] detaches and leaves the program running.

    Examples:

        sandboxer shell sbx_0123456789abcdefghjkmnpqrs

        sandboxer shell sbx_0123456789abcdefghjkmnpqrs --command 'python3 -q'

        sandboxer shell sbx_0123456789abcdefghjkmnpqrs --attach TERMINAL_ID
    """
    if not sys.stdin.isatty():
        raise CommandFailed("`shell` needs a terminal.", next_step="Use `sandboxer exec ID -- …` in scripts.")
    with client(url, state_dir) as platform:
        sandbox = platform.sandbox(sandbox_id)
        cols, rows = shutil.get_terminal_size()
        session = sandbox.terminal.open(
            command=command, cwd=cwd, user=user, cols=cols, rows=rows, terminal_id=attach
        )
        with raw_terminal():
            ended = _converse(sandbox, session)
    if ended.exit is None:
        again = f"sandboxer shell {sandbox_id} --attach {ended.terminal_id}"
        err.print(f"[dim]detached; back with:[/] {again}", soft_wrap=True)
        return
    raise typer.Exit(ended.exit.exit_code)


@contextlib.contextmanager
def raw_terminal() -> Iterator[None]:
    """Every key goes inside, Ctrl-C included; put back as it was, whatever happens."""
    before = termios.tcgetattr(0)
    try:
        # Not the default, which throws away what was typed ahead.
        tty.setraw(0, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


def _converse(sandbox: Sandbox, session: Session) -> Session:
    """Until the program ends or the user detaches; over as many connections as it takes."""
    with Keyboard(session) as keyboard:
        while True:
            _show(session)
            if session.exit is not None or keyboard.has_detached:
                return session
            session = keyboard.session = _again(sandbox, session)


def _show(session: Session) -> None:
    with session:
        while (data := session.read()) is not None:
            os.write(1, data)


def _again(sandbox: Sandbox, lost: Session) -> Session:
    """The line broke, the program did not: dial until the platform is back."""
    deadline = time.monotonic() + REATTACH_FOR_S
    while True:
        cols, rows = shutil.get_terminal_size()
        try:
            return sandbox.terminal.open(terminal_id=lost.terminal_id, cols=cols, rows=rows)
        except SdkError:
            if lost.terminal_id is None or time.monotonic() > deadline:
                raise
            time.sleep(0.5)


class Keyboard:
    """A thread that alone writes to the session: keys, and the window's size when it changes."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.has_detached = False
        self._wake_reader, self._wake_writer = os.pipe()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._before: object = None

    def __enter__(self) -> Keyboard:
        self._before = signal.signal(signal.SIGWINCH, self._on_resize)
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        signal.signal(signal.SIGWINCH, self._before)  # type: ignore[arg-type]
        os.write(self._wake_writer, b"q")
        self._thread.join(timeout=2.0)

    def _on_resize(self, *_: object) -> None:
        # A signal may come in the middle of anything: only leave a mark for the thread.
        os.write(self._wake_writer, b"w")

    def _listen(self) -> None:
        while True:
            ready, _, _ = select.select([0, self._wake_reader], [], [])
            if self._wake_reader in ready:
                if b"q" in os.read(self._wake_reader, 64):
                    return
                self._send_size()
            if 0 in ready:
                keys = os.read(0, 65536)
                if not keys or DETACH in keys:
                    self.has_detached = True
                    self.session.detach()
                    return
                self._send(keys)

    def _send(self, keys: bytes) -> None:
        # Keys typed while the line is down are lost, as on any terminal that hangs up.
        with contextlib.suppress(Exception):
            self.session.write(keys)

    def _send_size(self) -> None:
        cols, rows = shutil.get_terminal_size()
        with contextlib.suppress(Exception):
            self.session.resize(cols, rows)
