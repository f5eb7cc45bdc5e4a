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
from sandboxer.edges.cli.options import SandboxId, StateDir, Url, client, whole_id
from sandboxer.edges.cli.output import err
from sandboxer.kernel.program import late
from sandboxer.sdk.credentials import own_files
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
TERMINALS = "terminals.json"


@app.command("shell")
def shell(
    sandbox_id: SandboxId,
    command: Annotated[
        str | None, typer.Option("--command", help="Program instead of a login shell.")
    ] = None,
    attach: Annotated[str | None, typer.Option("--attach", help="Go back to this terminal.")] = None,
    new: Annotated[bool, typer.Option("--new", help="Open another terminal, whatever was left.")] = False,
    cwd: Annotated[str | None, typer.Option(help="Folder to start in.")] = None,
    user: Annotated[str | None, typer.Option(help="User inside (default root).")] = None,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Open a terminal in a sandbox, or go back to the last one that was left here and still runs.

    Ctrl-] leaves, and the program runs on; ending the shell (exit, Ctrl-D) ends the terminal.

    Examples:

        sandboxer shell dev

        sandboxer shell dev --command 'python3 -q'

        sandboxer shell dev --new

        sandboxer shell dev --attach TERMINAL_ID
    """
    if not sys.stdin.isatty():
        raise CommandFailed("`shell` needs a terminal.", next_step="Use `sandboxer exec ID -- …` in scripts.")
    with client(url, state_dir) as platform:
        sandbox = platform.sandbox(whole_id(platform, sandbox_id))
        if attach is None and not (new or command or cwd or user):
            attach = _left(sandbox)
        cols, rows = shutil.get_terminal_size()
        session = sandbox.terminal.open(
            command=command, cwd=cwd, user=user, cols=cols, rows=rows, terminal_id=attach
        )
        back = "back in the terminal that was left (--new opens another); " if attach else ""
        err.print(f"[dim]{back}Ctrl-] leaves it running, exit ends it[/]", soft_wrap=True)
        with raw_terminal():
            ended = _converse(sandbox, session)
    if ended.exit is None:
        _note(sandbox.id, ended.terminal_id)
        err.print(f"\n[dim]left running; back with:[/] sandboxer shell {sandbox_id}", soft_wrap=True)
        return
    raise typer.Exit(ended.exit.exit_code)


def _left(sandbox: Sandbox) -> str | None:
    """The terminal that was last left from here, if it still runs. Those in other windows and of other people
    are in use, and not meant.
    """
    if (terminal_id := own_files().read(TERMINALS).get(sandbox.id)) is None:
        return None
    _note(sandbox.id, None)
    running = {one.terminal_id for one in sandbox.terminal.list() if one.running}
    return terminal_id if terminal_id in running else None


def _note(sandbox_id: str, terminal_id: str | None) -> None:
    """Keeps the last hundred; None: nothing was left there."""
    files = own_files()
    kept = {name: word for name, word in files.read(TERMINALS).items() if name != sandbox_id}
    if terminal_id is not None:
        kept[sandbox_id] = terminal_id
    with contextlib.suppress(OSError):
        files.write(TERMINALS, dict(list(kept.items())[-100:]))


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
                if not (keys := os.read(0, 65536)) or DETACH in keys:
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
