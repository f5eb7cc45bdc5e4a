"""`ssh-key add|list|remove`: public keys that open sandboxes by SSH."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, out, print_json, until

app = typer.Typer(help="Keys that open sandboxes by SSH.", no_args_is_help=True, rich_markup_mode="rich")
groups = {"ssh-key": app}


@app.command("add")
def add(
    file: Annotated[Path, typer.Argument(help="A public key file; - for stdin.", metavar="FILE.pub")],
    name: Annotated[str | None, typer.Option(help="What to call it.")] = None,
    sandbox: Annotated[
        str | None, typer.Option(help="The one sandbox it opens; all of the account's without it.")
    ] = None,
    ttl: Annotated[str | None, typer.Option(help="How long it works: 1h, 30d.")] = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Let a public key open sandboxes.

    Examples:

        sandboxer ssh-key add ~/.ssh/id_ed25519.pub

        sandboxer ssh-key add ~/.ssh/id_ed25519.pub --sandbox sbx_0123456789abcdefghjkmnpqrs --ttl 8h
    """
    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{file} cannot be read: {error}", next_step="Name a .pub file.") from None
    with client(url, state_dir) as platform:
        made = platform.ssh.add_key(text, name=name, sandbox_id=sandbox, ttl=ttl)
    if json:
        print_json(made)
        return
    out.print(f"{made.id}  {made.fingerprint}", soft_wrap=True)
    out.print(f"[dim]opens {made.sandbox_id or 'every sandbox of the account'}[/]")


@app.command("list")
def list_keys(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """List the keys that stand.

    Examples:

        sandboxer ssh-key list
    """
    with client(url, state_dir) as platform:
        found = platform.ssh.keys()
    if json:
        print_json(list(found))
        return
    rows = [
        (
            one.id,
            one.name,
            one.fingerprint,
            one.sandbox_id or "all",
            ago(one.created_at),
            "until revoked" if one.expires_at is None else until(one.expires_at),
        )
        for one in found
    ]
    out.print(columns(rows, "ID", "NAME", "FINGERPRINT", "OPENS", "ADDED", "LASTS"))


@app.command("remove")
def remove(
    key_id: Annotated[str, typer.Argument(help="As `ssh-key list` shows it.", metavar="ID")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Revoke a key; what is open by it ends within a second.

    Examples:

        sandboxer ssh-key remove ssk_0123456789abcdefghjkmnpqrs
    """
    with client(url, state_dir) as platform:
        platform.ssh.revoke_key(key_id)
    if json:
        print_json({"id": key_id, "revoked": True})
    else:
        out.print(f"revoked {key_id}")
