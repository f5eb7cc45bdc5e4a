"""`keys create|list|revoke`: who may call."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, err, facts_table, out, print_json

app = typer.Typer(help="Create, list and revoke keys.", no_args_is_help=True, rich_markup_mode="rich")
groups = {"keys": app}


@app.command("create")
def create_key(
    name: Annotated[str, typer.Argument(help="A name for people.")],
    account: Annotated[str, typer.Option(help="Whose sandboxes it sees.")] = "default",
    accepts_v1: Annotated[
        bool, typer.Option("--accepts-v1", help="Also accept version 1 signatures (no replay protection).")
    ] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Make a key. Its secret is shown now and never again.

    Examples:

        sandboxer keys create laptop --account search-team
    """
    with client(url, state_dir) as platform:
        key = platform.keys.create(name, account, accepts_v1=accepts_v1)
    if json:
        print_json(key)
        return
    out.print(facts_table(key.model_dump().items()))
    err.print("[yellow]Keep the secret now: it is not shown again.[/]")


@app.command("list")
def list_keys(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """List keys.

    Examples:

        sandboxer keys list --json
    """
    with client(url, state_dir) as platform:
        keys = platform.keys.list()
    if json:
        print_json(list(keys))
        return
    rows = [
        (
            key.public_key,
            key.name,
            key.account,
            "owner" if key.is_owner else "",
            "v1, v2" if key.accepts_v1 else "v2",
            ago(key.created_at),
            f"revoked {ago(key.revoked_at)}" if key.revoked_at else "",
        )
        for key in keys
    ]
    out.print(columns(rows, "KEY", "NAME", "ACCOUNT", "", "SIGNATURES", "CREATED", ""))


@app.command("revoke")
def revoke_key(
    public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """End a key at once. Its account's sandboxes stay.

    Examples:

        sandboxer keys revoke sbx-pk-…
    """
    with client(url, state_dir) as platform:
        platform.keys.revoke(public_key)
    if json:
        print_json({"public_key": public_key, "revoked": True})
    else:
        out.print(f"revoked {public_key}")
