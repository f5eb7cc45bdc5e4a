"""`process list|show|wait|signal|end|terminals|end-terminal`: what runs in a sandbox beside `exec`."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.options import SandboxId
from sandboxer.edges.cli.verbs import group, verb
from sandboxer.sdk.sync.client import Sandboxer

app = group("Look at, wait for and end processes in the background.")
groups = {"process": app}
ProcessId = Annotated[str, typer.Argument(help="Id of the process (prc_…).", metavar="PROCESS")]


@verb(app, "list")
def listed(platform: Sandboxer, sandbox_id: SandboxId) -> object:
    """List processes that were started in the background.

    Examples:

        sandboxer process list sbx_0123456789abcdefghjkmnpqrs
    """
    return list(platform.sandbox(sandbox_id).processes.list())


@verb(app, "show")
def look(platform: Sandboxer, sandbox_id: SandboxId, process_id: ProcessId) -> object:
    """Show one process.

    Examples:

        sandboxer process show sbx_0123456789abcdefghjkmnpqrs prc_0123456789abcdefghjkmnpqrs
    """
    return platform.sandbox(sandbox_id).processes.get(process_id)


@verb(app, "wait")
def wait(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    process_id: ProcessId,
    timeout: Annotated[float, typer.Option(help="Seconds to wait at most.")] = 60.0,
) -> object:
    """Wait for the end of a process, and show how it ended.

    Examples:

        sandboxer process wait sbx_0123456789abcdefghjkmnpqrs prc_0123456789abcdefghjkmnpqrs --timeout 300
    """
    return platform.sandbox(sandbox_id).processes.wait(process_id, timeout_s=timeout)


@verb(app, "signal")
def signal(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    process_id: ProcessId,
    name: Annotated[str, typer.Argument(help="Without SIG: TERM, KILL, INT, …", metavar="SIGNAL")],
    tree: Annotated[bool, typer.Option("--tree", help="Also to everything it started.")] = False,
) -> object:
    """Send a signal to a process.

    Examples:

        sandboxer process signal sbx_0123456789abcdefghjkmnpqrs prc_0123456789abcdefghjkmnpqrs TERM
    """
    platform.sandbox(sandbox_id).processes.signal(process_id, name, tree=tree)
    return {"process_id": process_id, "signal": name}


@verb(app, "end")
def end(platform: Sandboxer, sandbox_id: SandboxId, process_id: ProcessId) -> object:
    """End a process and everything it started, and forget it.

    Examples:

        sandboxer process end sbx_0123456789abcdefghjkmnpqrs prc_0123456789abcdefghjkmnpqrs
    """
    platform.sandbox(sandbox_id).processes.end(process_id)
    return {"process_id": process_id, "ended": True}


@verb(app, "terminals")
def terminals(platform: Sandboxer, sandbox_id: SandboxId) -> object:
    """List terminals that are open in a sandbox, or can be attached to again.

    Examples:

        sandboxer process terminals sbx_0123456789abcdefghjkmnpqrs
    """
    return list(platform.sandbox(sandbox_id).terminal.list())


@verb(app, "end-terminal")
def end_terminal(
    platform: Sandboxer,
    sandbox_id: SandboxId,
    terminal_id: Annotated[str, typer.Argument(help="As `process terminals` shows it.")],
) -> object:
    """End a terminal and what runs in it.

    Examples:

        sandboxer process end-terminal sbx_0123456789abcdefghjkmnpqrs prc_0123456789abcdefghjkmnpqrs
    """
    platform.sandbox(sandbox_id).terminal.end(terminal_id)
    return {"terminal_id": terminal_id, "ended": True}
