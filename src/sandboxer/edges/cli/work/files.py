"""`files list|move|remove|watch`: files inside a sandbox. `cp` copies them in and out."""

from __future__ import annotations

from itertools import islice
from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json, SandboxId
from sandboxer.edges.cli.output import plain
from sandboxer.edges.cli.verbs import Answer, group, show_answer, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.files import WatchReady

app = group("List, move, remove and watch files.")
groups = {"files": app}
Place = Annotated[str, typer.Argument(help="Absolute path inside the sandbox.", metavar="PATH")]


@verb(app, "list")
def listed(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    path: Place = "/workspace",
    depth: Annotated[int, typer.Option(min=1, help="1: the folder itself.")] = 1,
) -> object:
    """List a folder.

    Examples:

        sandboxer files list sbx_0123456789abcdefghjkmnpqrs /workspace --depth 2
    """
    return list(platform.sandbox(sandbox_id).files.list(path, depth=depth))


@verb(app, "move")
def move(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    source: Place,
    target: Annotated[str, typer.Argument(help="Where to.", metavar="TARGET")],
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")] = False,
) -> object:
    """Move or rename a file or folder.

    Examples:

        sandboxer files move sbx_0123456789abcdefghjkmnpqrs /tmp/a /workspace/a
    """
    platform.sandbox(sandbox_id).files.move(source, target, overwrite=overwrite)
    return {"moved": source, "to": target}


@verb(app, "remove")
def remove(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    path: Place,
    recursive: Annotated[bool, typer.Option("--recursive", "-r", help="Also a folder with content.")] = False,
) -> object:
    """Remove a file or folder.

    Examples:

        sandboxer files remove sbx_0123456789abcdefghjkmnpqrs /tmp/a
    """
    platform.sandbox(sandbox_id).files.remove(path, recursive=recursive)
    return {"removed": path}


@verb(app, "watch")
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

        sandboxer files watch sbx_0123456789abcdefghjkmnpqrs /workspace
    """
    events = platform.sandbox(sandbox_id).files.watch(path, recursive=recursive)
    changes = (event for event in events if not isinstance(event, WatchReady))
    for event in islice(changes, count):
        show_answer(Answer(event, event.change, plain(event.path)), is_json=json)
