"""`mcp`: the tools of a platform for hosts of models, and what such a host is told to find them."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import StateDir, Url
from sandboxer.kernel.program import late
from sandboxer.sdk.credentials import Credentials, find_credentials, leading_here
from sandboxer.sdk.errors import MissingCredentials
from sandboxer.sdk.tools import OFFERS

if TYPE_CHECKING:
    from sandboxer.edges.mcp import hosts, stdio
else:
    hosts, stdio = late("sandboxer.edges.mcp.hosts"), late("sandboxer.edges.mcp.stdio")

app = typer.Typer(rich_markup_mode="rich")
TOKEN = "SANDBOXER_API_KEY"


@app.command("mcp")
def mcp(
    tools: Annotated[
        str,
        typer.Option(help="Which tools: [bold]core[/], a dozen; [bold]standard[/]; [bold]all[/] there are."),
    ] = "standard",
    config: Annotated[
        str | None,
        typer.Option(
            help="Print what this host has in its configuration, and end: claude, cursor, vscode, codex,"
            " gemini.",
            metavar="HOST",
        ),
    ] = None,
    remote: Annotated[
        bool,
        typer.Option(
            "--remote", help="With --config: the host speaks to the platform itself, and starts nothing."
        ),
    ] = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Give hosts of models (Claude, Cursor, VS Code, …) a platform's tools.

    A host starts this, and speaks the Model Context Protocol on stdin and stdout. Platforms serve the same
    at /mcp, for hosts that speak HTTP.

    Examples:

        sandboxer mcp --config claude

        sandboxer mcp --tools core
    """
    if (offer := next((one for one in OFFERS if one == tools), None)) is None:
        raise CommandFailed(f"There are no tools {tools!r}.", next_step=f"Say one of: {', '.join(OFFERS)}.")
    if config is None:
        asyncio.run(stdio.serve(_credentials(url, state_dir), offer))
        return
    if (host := next((one for one in hosts.HOSTS if one == config), None)) is None:
        raise CommandFailed(
            f"No host {config!r} is known.", next_step=f"Say one of: {', '.join(hosts.HOSTS)}."
        )
    if remote:
        where = f"{_credentials(url, state_dir).url.rstrip('/')}/mcp?tools={offer}"
        print(hosts.spoken_to(host, where, TOKEN))
        return
    words = ["mcp", "--tools", offer]
    words += ["--url", url] if url is not None else []
    words += ["--state-dir", str(state_dir.resolve())] if state_dir is not None else []
    print(hosts.started(host, _program(), words, leading_here()))


def _credentials(url: str | None, state_dir: Path | None) -> Credentials:
    """Returns the key that other verbs use. Without one, strangers' tools are served, and the key that comes
    with a first purchase is used from then on.
    """
    try:
        return find_credentials(url=url, owner_file=None if state_dir is None else state_dir / "owner.json")
    except MissingCredentials:
        if url is None:
            raise
        return Credentials("", "", url)


def _program() -> str:
    """Returns the path of this program: a host has a PATH of its own."""
    return shutil.which("sandboxer") or os.path.abspath(sys.argv[0])
