"""`exec`: one command in a sandbox, its output live, its exit code ours.

A `Feeder` passes our standard input on to the process while its output is printed.
"""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
import time
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import typer
from rich.markup import escape

from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import Json, SandboxId, StateDir, Url, client, duration, pairs
from sandboxer.edges.cli.output import err, print_error, print_json, size
from sandboxer.sdk.commands import Chunk, Piece, Settings, What
from sandboxer.sdk.errors import ApiError, SdkError
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.wire.processes import ExecExit, Process

# A pipe's worth: small enough to be live, large enough not to cost a request per line.
CHUNK = 1 << 18
# How long the answer to what was under way when the process ended may take.
PATIENCE_S = 30.0
# How long whoever fills our input may take to give us more, once the process has ended.
MOMENT_S = 0.05
app = typer.Typer(rich_markup_mode="rich")
Ran = tuple[int, str | None]
# By the code of a refusal: the exit code and the words of a shell.
NOT_RUN = {"path_not_found": (127, "command not found"), "permission_denied": (126, "cannot be run")}


@app.command("exec", context_settings={"ignore_unknown_options": True})
def run_command(
    sandbox_id: SandboxId,
    argv: Annotated[
        list[str] | None, typer.Argument(help="The program and its words.", metavar="-- ARGV…")
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", help="Text for /bin/sh instead of ARGV.")
    ] = None,
    cwd: Annotated[str | None, typer.Option(help="Folder to run in.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", help="NAME=VALUE; can be repeated.")] = None,
    user: Annotated[str | None, typer.Option(help="User inside (default root).")] = None,
    timeout: Annotated[
        float | None, duration("--timeout", words="Kill everything it started after this.")
    ] = None,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="Do not read our standard input.")] = False,
    partial_stdin: Annotated[
        bool,
        typer.Option("--partial-stdin", help="The command need not read all of our standard input."),
    ] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Run a command in a sandbox: output as it comes, our stdin passed on, the inside exit code returned.

    When the command ends well without having taken all of our standard input, that is said, and the exit
    code is 4, unless [bold]--partial-stdin[/] allows it.

    Examples:

        sandboxer exec dev -- python3 -c 'print(6 * 7)'

        cat data.csv | sandboxer exec dev -- wc -l

        sandboxer exec dev --timeout 10s --command 'make test | tail -3'
    """
    what = _what(sandbox_id, argv, command)
    settings = Settings(cwd=cwd, env=pairs(env, "--env"), user=user, timeout_s=timeout)
    stdin = None if no_stdin else open_stdin()
    with client(url, state_dir) as platform:
        sandbox = platform.sandbox(sandbox_id)
        try:
            if json:
                code, unread = _run_buffered(sandbox, what, settings, stdin)
            elif stdin is None:
                code, unread = _print_pieces(sandbox.stream(what, **settings)), None
            else:
                code, unread = _run_fed(sandbox, what, settings, stdin)
        except ApiError as error:
            # As a shell says it, also of what the platform refuses to start.
            if not argv or error.code not in NOT_RUN or error.fact("path") != argv[0]:
                raise
            code, words = NOT_RUN[error.code]
            print_error(error, is_json=True) if json else err.print(f"{escape(argv[0])}: {words}")
            raise typer.Exit(code) from None
    if unread is not None and not partial_stdin:
        err.print(f"[red]the input was not all taken:[/] {escape(unread)}")
        code = code or Exit.REFUSED
    raise typer.Exit(code)


def _what(sandbox_id: str, argv: list[str] | None, command: str | None) -> What:
    if not argv and command is None:
        raise typer.BadParameter(f"say what to run: sandboxer exec {sandbox_id} -- COMMAND")
    if argv and command is not None:
        raise typer.BadParameter("give either ARGV (after --) or --command TEXT")
    return command if command is not None else list(argv or [])


def open_stdin() -> BinaryIO | None:
    """Our standard input if something is piped into it; a terminal or /dev/null holds nothing to pass on."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return None
    return None if stat.S_ISCHR(kind) else sys.stdin.buffer


"""The exit code of the command, and why it did not take all of its input, if so."""


def _run_buffered(sandbox: Sandbox, what: What, settings: Settings, stdin: BinaryIO | None) -> Ran:
    data = stdin.read() if stdin else None
    result = sandbox.exec(what, **settings, stdin=data)
    print_json(result)
    if data is None or result.stdin_bytes is None or result.stdin_bytes == len(data):
        return result.exit_code, None
    return result.exit_code, f"the command took {result.stdin_bytes} of {len(data)} bytes"


def _run_fed(sandbox: Sandbox, what: What, settings: Settings, stdin: BinaryIO) -> Ran:
    process = sandbox.processes.start(what, **settings, has_stdin=True, tag="cli")
    try:
        feeder = Feeder(sandbox, process, stdin)
        code = _print_pieces(sandbox.processes.output(process.process_id))
        feeder.settle()
        return code, feeder.complaint
    finally:
        # Also when we are interrupted: what we started in the foreground does not outlive us.
        sandbox.processes.end(process.process_id)


def _print_pieces(pieces: Iterator[Piece]) -> int:
    for piece in pieces:
        if isinstance(piece, Chunk):
            write_chunk(piece)
        elif isinstance(piece, ExecExit):
            if piece.timed_out:
                err.print("[yellow]timed out; everything it started was killed[/]")
            elif piece.reason:
                err.print(f"[yellow]ended by the sandbox: {piece.reason}[/]")
            return piece.exit_code
    raise CommandFailed("The stream ended before the command did.", next_step="Look at `sandboxer show ID`.")


def write_chunk(chunk: Chunk, *, is_stderr: bool = False) -> None:
    """Writes it to the stream it came from, or to stderr."""
    if chunk.dropped:
        err.print(f"[yellow]… {size(chunk.dropped)} of {chunk.stream} were dropped[/]")
    target = sys.stdout.buffer if chunk.stream == "stdout" and not is_stderr else sys.stderr.buffer
    target.write(chunk.data)
    target.flush()


class Feeder:
    """Reads until the end of our input, in a thread of its own.

    `failure` is set when the process did not take what we had read, whoever's fault that was.
    """

    def __init__(self, sandbox: Sandbox, process: Process, stdin: BinaryIO) -> None:
        self._sandbox = sandbox
        self._id = process.process_id
        # A sandbox that counts lets us repeat a write whose answer was lost.
        self._counts = process.stdin_bytes is not None
        self._stdin = stdin
        self._idle = threading.Event()
        self._idle.set()
        self.passed_on = 0
        self.failure: SdkError | None = None
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def settle(self) -> None:
        """To be called when the process has ended: waits for the answer to what is under way, and offers what
        there still is to read. Of input that nobody has given us yet nothing can be said."""
        deadline = time.monotonic() + PATIENCE_S
        while self._thread.is_alive() and time.monotonic() < deadline:
            if self._idle.wait(PATIENCE_S) and not select.select([self._stdin], [], [], MOMENT_S)[0]:
                return
            self._thread.join(MOMENT_S)

    @property
    def complaint(self) -> str | None:
        """Why the process did not take what we read, in words; None: it did."""
        if self.failure is None:
            return None
        last = self.failure.problem.get("taken_bytes", 0) if isinstance(self.failure, ApiError) else 0
        if not isinstance(last, int):
            return str(self.failure)
        return f"the command took {self.passed_on + last} bytes and no more ({self.failure})"

    def _feed(self) -> None:
        try:
            while data := os.read(self._stdin.fileno(), CHUNK):
                self._idle.clear()
                offset = self.passed_on if self._counts else None
                self._sandbox.processes.write_stdin(self._id, data, offset=offset)
                self.passed_on += len(data)
                self._idle.set()
            self._idle.clear()
            self._sandbox.processes.close_stdin(self._id)
        except SdkError as error:
            # Closing what has ended and was forgotten is no loss.
            self.failure = error if data else None
        finally:
            self._idle.set()
