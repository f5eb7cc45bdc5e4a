"""`exec`: one command in a sandbox, its output live, its exit code ours."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from collections.abc import Iterator
from typing import Annotated, BinaryIO

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, SandboxId, StateDir, Url, client, pairs
from sandboxer.edges.cli.output import err, print_json
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.routes.running import Chunk, Piece, Settings, What
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.wire.exec import ExecExit

app = typer.Typer(rich_markup_mode="rich")
# A pipe's worth: small enough to be live, large enough not to cost a request per line.
STDIN_CHUNK = 1 << 18


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
        float | None, typer.Option(help="Seconds until everything it started is killed.")
    ] = None,
    no_stdin: Annotated[bool, typer.Option("--no-stdin", help="Do not read our standard input.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Run a command in a sandbox: output as it comes, our stdin passed on, the inside exit code returned.

    Examples:

        sandboxer exec sbx_0123456789abcdefghjkmnpqrs -- python3 -c 'print(6 * 7)'

        cat data.csv | sandboxer exec sbx_0123456789abcdefghjkmnpqrs -- wc -l

        sandboxer exec sbx_0123456789abcdefghjkmnpqrs --timeout 10 --command 'make test | tail -3'
    """
    what = _what(argv, command)
    settings = Settings(cwd=cwd, env=pairs(env, "--env"), user=user, timeout_s=timeout)
    stdin = None if no_stdin else open_stdin()
    with client(url, state_dir) as platform:
        sandbox = platform.sandbox(sandbox_id)
        if json:
            code = _run_buffered(sandbox, what, settings, stdin)
        else:
            code = _print_pieces(_pieces(sandbox, what, settings, stdin))
    raise typer.Exit(code)


def _what(argv: list[str] | None, command: str | None) -> What:
    if bool(argv) == (command is not None):
        raise typer.BadParameter("give either ARGV (after --) or --command TEXT")
    return command if command is not None else list(argv or [])


def open_stdin() -> BinaryIO | None:
    """Our standard input if something is piped into it; a terminal or /dev/null holds nothing to pass on."""
    try:
        kind = os.fstat(0).st_mode
    except OSError:
        return None
    return None if stat.S_ISCHR(kind) else sys.stdin.buffer


def _run_buffered(sandbox: Sandbox, what: What, settings: Settings, stdin: BinaryIO | None) -> int:
    result = sandbox.exec(
        what,
        cwd=settings.cwd,
        env=settings.env,
        user=settings.user,
        timeout_s=settings.timeout_s,
        stdin=stdin.read() if stdin else None,
    )
    print_json(result)
    return result.exit_code


def _pieces(sandbox: Sandbox, what: What, settings: Settings, stdin: BinaryIO | None) -> Iterator[Piece]:
    if stdin is None:
        yield from sandbox.stream(
            what, cwd=settings.cwd, env=settings.env, user=settings.user, timeout_s=settings.timeout_s
        )
        return
    process = sandbox.processes.start(
        what,
        cwd=settings.cwd,
        env=settings.env,
        user=settings.user,
        timeout_s=settings.timeout_s,
        has_stdin=True,
        tag="cli",
    )
    feeder = threading.Thread(target=_feed, args=(sandbox, process.process_id, stdin), daemon=True)
    feeder.start()
    try:
        yield from sandbox.processes.output(process.process_id)
    finally:
        # Also when we are interrupted: what we started in the foreground does not outlive us.
        sandbox.processes.end(process.process_id)


def _feed(sandbox: Sandbox, process_id: str, stdin: BinaryIO) -> None:
    """Passes stdin on, as it comes, until it ends or the command no longer listens."""
    # A command that ended or closed its stdin is no error: `head -1` does so.
    with contextlib.suppress(SdkError):
        while data := os.read(stdin.fileno(), STDIN_CHUNK):
            sandbox.processes.write_stdin(process_id, data)
        sandbox.processes.close_stdin(process_id)


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
    raise CommandFailed("The stream ended before the command did.", next_step="Look at `sandboxer get ID`.")


def write_chunk(chunk: Chunk, *, is_stderr: bool = False) -> None:
    """To the stream it came from, or to stderr."""
    if chunk.dropped:
        err.print(f"[yellow]… {chunk.dropped} bytes of {chunk.stream} were dropped[/]")
    target = sys.stdout.buffer if chunk.stream == "stdout" and not is_stderr else sys.stderr.buffer
    target.write(chunk.data)
    target.flush()
