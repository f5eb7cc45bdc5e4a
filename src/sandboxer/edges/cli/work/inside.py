"""`file list|move|delete|watch`: files inside a sandbox. `cp` copies them in and out.

`process list|show|wait|signal|delete` and `terminal list|delete`: what runs in a sandbox beside `exec`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Annotated, Any, NamedTuple

import typer

from sandboxer.edges.cli.exec import write_chunk
from sandboxer.edges.cli.options import Json, SandboxId, Timeout
from sandboxer.edges.cli.output import err, plain
from sandboxer.edges.cli.verbs import Answer, Row, as_it_is, gone, group, rows, show_answer, show_pieces, verb
from sandboxer.edges.cli.work.service_settings import print_line
from sandboxer.kernel.errors import NotFound
from sandboxer.sdk.commands import Chunk
from sandboxer.sdk.errors import ApiError, SdkError
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.inside import Processes
from sandboxer.wire.files import WatchReady

app = typer.Typer(rich_markup_mode="rich")
files = group("List, move, remove and watch files.")
processes = group("Look at, wait for and end processes in the background.")
terminals = group("Look at and end terminals.")
groups = {"file": files, "process": processes, "terminal": terminals}
Place = Annotated[str, typer.Argument(help="Absolute path inside the sandbox.", metavar="PATH")]


@verb(files, "list")
def list_files(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    path: Place = "/workspace",
    depth: Annotated[int, typer.Option(min=1, help="1: the folder itself.")] = 1,
) -> object:
    """List a folder.

    Examples:

        sandboxer file list dev /workspace --depth 2
    """
    return list(platform.sandbox(sandbox_id).files.list(path, depth=depth))


@verb(files, "move")
def move(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    source: Place,
    target: Annotated[str, typer.Argument(help="Where to.", metavar="TARGET")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> object:
    """Move or rename a file or folder.

    Examples:

        sandboxer file move dev /tmp/a /workspace/a
    """
    sandbox = platform.sandbox(sandbox_id)
    sandbox.files.move(source, target, overwrite=overwrite)
    return sandbox.files.stat(target, follow=False)


@verb(files, "delete")
def remove(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    path: Place,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Also a folder with content.")] = False,
) -> object:
    """Remove a file or folder.

    Examples:

        sandboxer file delete dev /tmp/a
    """
    platform.sandbox(sandbox_id).files.remove(path, recursive=recursive)
    return gone(path=path)


@verb(files, "watch")
def watch(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    path: Place,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Also in folders below.")] = False,
    count: Annotated[int | None, typer.Option(min=1, help="Stop after so many changes.")] = None,
    json: Json = False,
) -> None:
    """Print changes in a folder as they happen, until interrupted.

    Examples:

        sandboxer file watch dev /workspace
    """
    events = platform.sandbox(sandbox_id).files.watch(path, recursive=recursive)
    changes = (event for event in events if not isinstance(event, WatchReady))
    for event in islice(changes, count):
        show_answer(Answer(event, event.change, plain(event.path)), is_json=json)


# How many last lines of a service are shown.
LINES = 100
ProcessId = Annotated[str, typer.Argument(help="Id of the process (prc_…).", metavar="PROCESS")]


def _processes(platform: Sandboxer, given: dict[str, Any]) -> Processes:
    return platform.sandbox(given.pop("sandbox_id")).processes


@verb(processes, "list")
def list_processes(platform: Sandboxer, sandbox_id: SandboxId) -> object:
    """List processes that were started in the background.

    Examples:

        sandboxer process list dev
    """
    return list(platform.sandbox(sandbox_id).processes.list())


rows(
    processes,
    _processes,
    {"sandbox_id": SandboxId, "process_id": ProcessId},
    as_it_is,
    Row(
        "show",
        Processes.get,
        "Show one process.",
        "process show dev prc_0123456789abcdefghjkmnpqrs",
    ),
    Row(
        "wait",
        Processes.wait,
        "Wait for the end of a process, and show how it ended.",
        "process wait dev prc_0123456789abcdefghjkmnpqrs --timeout 5m",
        {"timeout_s": (Timeout, 60.0)},
    ),
)


@verb(processes, "signal")
def signal(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    process_id: ProcessId,
    name: Annotated[str, typer.Argument(help="Without SIG: TERM, KILL, INT, …", metavar="SIGNAL")],
    tree: Annotated[bool, typer.Option("--tree", help="Also to everything it started.")] = False,
) -> object:
    """Send a signal to a process.

    Examples:

        sandboxer process signal dev prc_0123456789abcdefghjkmnpqrs TERM
    """
    sandbox = platform.sandbox(sandbox_id)
    sandbox.processes.signal(process_id, name, tree=tree)
    return sandbox.processes.get(process_id)


@verb(processes, "delete")
def end(platform: Sandboxer, sandbox_id: SandboxId, process_id: ProcessId) -> object:
    """End a process and everything it started, and forget it.

    Examples:

        sandboxer process delete dev prc_0123456789abcdefghjkmnpqrs
    """
    platform.sandbox(sandbox_id).processes.end(process_id)
    return gone(process_id=process_id)


@verb(terminals, "list")
def list_terminals(platform: Sandboxer, sandbox_id: SandboxId) -> object:
    """List terminals that are open in a sandbox, or can be attached to again.

    Examples:

        sandboxer terminal list dev
    """
    return list(platform.sandbox(sandbox_id).terminal.list())


@verb(terminals, "delete")
def end_terminal(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    terminal_id: Annotated[str, typer.Argument(help="As `terminal list` shows it.")],
) -> object:
    """End a terminal and what runs in it.

    Examples:

        sandboxer terminal delete dev prc_0123456789abcdefghjkmnpqrs
    """
    platform.sandbox(sandbox_id).terminal.end(terminal_id)
    return gone(terminal_id=terminal_id)


@verb(app, "logs")
def logs(
    platform: Sandboxer,
    sandbox: Annotated[str, typer.Argument(help="A sandbox or a service.", metavar="SANDBOX|SERVICE")],
    process: Annotated[str | None, typer.Argument(help="Only this process of the sandbox.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    json: Json = False,
) -> None:
    """Show what the background processes of a sandbox, or a service, have printed.

    What `sandboxer exec` runs prints where it is run, and is not kept.

    Examples:

        sandboxer logs dev

        sandboxer logs -f hello
    """
    processes = platform.sandbox(sandbox).processes
    try:
        found = processes.list()
    except ApiError as error:
        if error.code != "not_found":
            raise
        _of_service(platform, sandbox, follow, json)
        return
    if not found and not json:
        err.print(plain(f"nothing: {sandbox} has no process in the background"), style="dim")
    wanted = [one.process_id for one in found if process in (None, one.process_id)]
    printed = (piece for one in wanted for piece in _printed(processes, one, follow))
    show_pieces(printed, lambda piece: write_chunk(piece.chunk), is_json=json, is_endless=follow)


def _of_service(platform: Sandboxer, name: str, follow: bool, is_json: bool) -> None:
    read = platform.services.follow if follow else platform.services.logs
    try:
        show_pieces(read(name, tail=LINES), print_line, is_json=is_json, is_endless=follow)
    except ApiError as error:
        if error.code != "not_found":
            raise
        hint = "See what there is: sandboxer list, sandboxer service list."
        raise NotFound(what="sandbox or service", id=name, hint=hint) from None


class _Printed(NamedTuple):
    """Some output of a process, and how programs see it."""

    process_id: str
    chunk: Chunk

    def model_dump(self, **_: str) -> dict[str, str]:
        text = self.chunk.data.decode(errors="replace")
        return {"process_id": self.process_id, "stream": self.chunk.stream, "text": text}


def _printed(processes: Processes, process_id: str, follow: bool) -> Iterator[_Printed]:
    # One that was forgotten meanwhile has printed nothing.
    with suppress(SdkError):
        for piece in processes.output(process_id, follow=follow):
            if isinstance(piece, Chunk):
                yield _Printed(process_id, piece)
