"""`session`: interpreters that keep their state; cells with live output, and a prompt to type them at."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Annotated, Any

import typer

from sandboxer.edges.cli.exec import write_chunk
from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import (
    Json,
    NetworkOption,
    StateDir,
    Url,
    VolumeOption,
    client,
    duration,
    mounts,
    pairs,
)
from sandboxer.edges.cli.output import (
    ago,
    as_json,
    columns,
    err,
    facts_table,
    out,
    plain,
    print_json,
    state_text,
)
from sandboxer.edges.cli.verbs import Answer, Row, group, rows, verb
from sandboxer.sdk.code import CellPiece, Shown, StartOptions
from sandboxer.sdk.commands import Chunk
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.code import Session
from sandboxer.wire import sessions as wire
from sandboxer.wire.sessions import CellEnd

app = group("Interpreters that keep their state.")
groups = {"session": app}
SessionId = Annotated[str, typer.Argument(help="Id of the session (ses_…).", metavar="ID")]
# Ended before it had a word to say, as at any prompt.
LEAVE = frozenset({"exit", "quit", ".exit"})


def _changed(session: wire.Session) -> Answer:
    return Answer(session, state_text(session.state))


def _session(platform: Sandboxer, given: dict[str, Any]) -> Session:
    return platform.sessions.get(given.pop("session_id"))


@verb(app, "create")
def start(
    platform: Sandboxer,
    language: Annotated[str, typer.Argument(help="As `sandboxer language list` shows them.")],
    sandbox: Annotated[str | None, typer.Option("--sandbox", help="Default: one of its own.")] = None,
    name: Annotated[str | None, typer.Option(help="For people.")] = None,
    env: Annotated[list[str] | None, typer.Option("--env", "-e", help="NAME=VALUE; can be repeated.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Default: /workspace.")] = None,
    ttl: Annotated[str | None, typer.Option(help="Default 1h, at most 24h.")] = None,
    idle: Annotated[str | None, typer.Option(help="Ends after so long without a cell. Default 15m.")] = None,
    vcpus: Annotated[
        int | None, typer.Option("--cpus", help="CPU cores; each brings 2 GB of memory.")
    ] = None,
    profile: Annotated[str | None, typer.Option(help="Recipe of its sandbox.")] = None,
    image: Annotated[str | None, typer.Option(help="Image of its sandbox.")] = None,
    network: NetworkOption = None,
    volume: VolumeOption = None,
) -> Answer:
    """Start an interpreter that keeps its state, and print its id.

    Examples:

        sandboxer session create python --volume data:/data

        sandboxer session attach $(sandboxer session create r)
    """
    options = StartOptions(
        sandbox_id=sandbox,
        name=name,
        env=pairs(env, "--env"),
        cwd=cwd,
        ttl=ttl,
        idle=idle,
        vcpus=vcpus,
        profile=profile,
        image=image,
        network=network,
        volumes=mounts(volume),
    )
    made = platform.sessions.start(language, **options)
    return Answer(made.info, made.id)


@verb(app, "list")
def list_sessions(
    platform: Sandboxer,
    sandbox: Annotated[str | None, typer.Option("--sandbox", help="Only those in this sandbox.")] = None,
    state: Annotated[str | None, typer.Option(help="Default: all but ended.")] = None,
) -> Answer:
    """List sessions, newest first.

    Examples:

        sandboxer session list --state ready
    """
    found = list(platform.sessions.list(sandbox_id=sandbox, state=state))
    rows = [
        (one.id, one.language, state_text(one.state), one.cells, one.sandbox_id, ago(one.created_at))
        for one in found
    ]
    table = columns(rows, "ID", "LANGUAGE", "STATE", "CELLS", "SANDBOX", "STARTED")
    return Answer(found, table, make="session create python")


@verb(app, "show")
def show(platform: Sandboxer, session_id: SessionId) -> Answer:
    """Show one session and its cells.

    Examples:

        sandboxer session show ses_0123456789abcdefghjkmnpqrs
    """
    session = platform.sessions.get(session_id)
    cells = session.cells()
    assert session.info is not None
    rows = [(cell.n, cell.status, f"{cell.duration_ms or 0:.1f}", _problem(cell)) for cell in cells]
    shown = [columns(rows, "CELL", "STATUS", "MS", "REASON")] if rows else []
    facts = facts_table(session.info.model_dump(mode="json").items())
    value = session.info.model_dump(mode="json") | {"cells": as_json(list(cells))}
    return Answer(value, facts, *shown)


def _problem(cell: CellEnd) -> str:
    return "" if cell.error is None else f"{cell.error.name}: {cell.error.message}"


@verb(app, "run")
def run(
    platform: Sandboxer,
    session_id: SessionId,
    code: Annotated[str | None, typer.Argument(help="Without it, standard input is the code.")] = None,
    timeout_s: Annotated[float | None, duration("--timeout", words="Interrupt it after this.")] = None,
    json: Json = False,
) -> None:
    """Run one cell: output as it comes, 0 if it went well. Ctrl-C interrupts the cell; the state stays.

    Examples:

        sandboxer session run ID 'x = 42'

        sandboxer session run ID < cell.py
    """
    text = sys.stdin.read() if code is None else code
    session = platform.sessions.get(session_id)
    if json:
        cell = session.run(text, timeout_s=timeout_s)
        print_json(cell)
        raise typer.Exit(_exit(cell))
    raise typer.Exit(_exit(_interruptible(session, session.stream(text, timeout_s=timeout_s))))


@app.command("attach")
def attach(session_id: SessionId, url: Url = None, state_dir: StateDir = None) -> None:
    """A prompt to type cells at, with live output; first what runs there now, if something does.

    A line that ends in a colon or a backslash, or an open block, goes on until an empty line. Ctrl-C stops
    the cell that runs, Ctrl-D leaves; the session stays.

    Examples:

        sandboxer session attach ses_0123456789abcdefghjkmnpqrs
    """
    with client(url, state_dir) as platform:
        session = platform.sessions.get(session_id)
        info = session.refresh()
        err.print(f"[dim]{info.language}, {info.state}; Ctrl-C stops a cell, Ctrl-D leaves.[/]")
        if info.state == "busy":
            _interruptible(session, session.follow(info.cells))
        while (text := _read_cell(info.language)) is not None:
            if text.strip() in LEAVE:
                break
            if text.strip():
                _interruptible(session, session.stream(text, timeout_s=3600.0))


@verb(app, "interrupt")
def interrupt(platform: Sandboxer, session_id: SessionId) -> Answer:
    """Stop the running cell as Ctrl-C would; the state stays.

    Examples:

        sandboxer session interrupt ses_0123456789abcdefghjkmnpqrs
    """
    session = platform.sessions.get(session_id)
    stopped = session.interrupt()
    note = "[dim]nothing ran[/]" if stopped is None else f"cell {stopped} was asked to stop"
    value = session.refresh().model_dump(mode="json") | {"interrupted_cell": stopped}
    return Answer(value, note=note)


of_sessions = partial(rows, app, _session, {"session_id": SessionId})
of_sessions(
    _changed,
    Row(
        "restart",
        Session.restart,
        "Start a fresh interpreter: what the old one knew is gone, files are not.",
        "session restart ses_0123456789abcdefghjkmnpqrs",
    ),
    Row(
        "freeze",
        Session.freeze,
        "Pause its sandbox in memory.",
        "session freeze ses_0123456789abcdefghjkmnpqrs",
    ),
    Row("thaw", Session.thaw, "Let its frozen sandbox go on.", "session thaw ses_0123456789abcdefghjkmnpqrs"),
)


@verb(app, "boost")
def boost(
    platform: Sandboxer,
    session_id: SessionId,
    vcpus: Annotated[int, typer.Argument(help="CPUs in all; each brings 2 GB of memory. 0: back again.")],
) -> object:
    """Give its sandbox more CPUs and memory at once, or take them back with 0.

    Examples:

        sandboxer session boost ses_0123456789abcdefghjkmnpqrs 4
    """
    session = platform.sessions.get(session_id)
    return _changed(session.boost(vcpus) if vcpus else session.unboost())


of_sessions(
    _changed,
    Row(
        "lock",
        Session.lock,
        "Guard its sandbox by a second proof: ending and unlocking it then need the account's other factor.",
        "session lock ses_0123456789abcdefghjkmnpqrs",
    ),
    Row(
        "unlock",
        Session.unlock,
        "Take that guard away, with a second proof.",
        "session unlock ses_0123456789abcdefghjkmnpqrs --wallet wallet.key",
        may_need_proof=True,
    ),
    Row(
        "delete",
        Session.end,
        "End it; a sandbox that was made for it goes with it.",
        "session delete ses_0123456789abcdefghjkmnpqrs",
        may_need_proof=True,
    ),
)


def _interruptible(session: Session, pieces: Iterator[CellPiece]) -> CellEnd:
    """Show it as it comes. Ctrl-C stops the cell, and its end is shown too; twice leaves it alone."""
    cell: CellEnd | None = None
    try:
        for piece in pieces:
            cell = _show(piece) or cell
    except KeyboardInterrupt:
        if cell is None:
            raise
        session.interrupt()
        for piece in session.follow(cell.n):
            if isinstance(piece, CellEnd):
                cell = piece
    if cell is None or cell.ended_at is None:
        raise CommandFailed("The stream ended before the cell did.", next_step="See `session show`.")
    _explain(cell)
    return cell


def _show(piece: CellPiece) -> CellEnd | None:
    if isinstance(piece, Chunk):
        write_chunk(piece)
    elif isinstance(piece, Shown):
        sys.stdout.flush()
        out.print(plain(piece.data.get("text/plain", "")))
        if pictures := [name for name in piece.data if name.startswith("image/")]:
            err.print(f"[dim]({', '.join(pictures)}: take it with --json)[/]")
    else:
        return piece
    return None


def _explain(cell: CellEnd) -> None:
    # A shell's failing command has said what there is to say.
    if cell.error is not None and cell.status != "ok" and cell.error.name != "exit":
        text = cell.error.traceback or f"{cell.error.name}: {cell.error.message}"
        err.print(plain(text.rstrip()), style="red")
    if cell.status in ("interrupted", "timed_out", "died"):
        err.print(f"[yellow]{cell.status.replace('_', ' ')}[/]")
    if cell.truncated:
        err.print("[yellow]it printed more than is kept[/]")


def _exit(cell: CellEnd) -> int:
    if cell.exit_code is not None:
        return cell.exit_code
    return Exit.OK if cell.status == "ok" else Exit.ERROR


def _read_cell(language: str) -> str | None:
    """One cell from the keyboard; None at the end."""
    lines: list[str] = []
    while True:
        try:
            line = input(f"{language}> " if not lines else "... ")
        except EOFError:
            return None if not lines else "\n".join(lines)
        except KeyboardInterrupt:
            err.print()
            return ""
        lines.append(line)
        is_open = line.rstrip().endswith((":", "\\", "{", "(", "[")) or (len(lines) > 1 and line.strip())
        if not is_open:
            return "\n".join(lines)


# Line editing where Python has it; a prompt without it still works.
with contextlib.suppress(ImportError):
    import readline  # noqa: F401
