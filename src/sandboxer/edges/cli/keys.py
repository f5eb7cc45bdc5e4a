"""`keys create|list|revoke|cut|tree|rotate|suspend|unsuspend|expire`: who may call, and with how much."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import BaseModel

from sandboxer.edges.cli.confirming import GivenProof, Wallet, with_wallet
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, err, facts_table, out, print_json
from sandboxer.wire.keys import KeyNode

app = typer.Typer(help="Make, delegate, list and end keys.", no_args_is_help=True, rich_markup_mode="rich")
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
    _show_once(key, json)


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
    """End a key at once, and every key that was cut from it. Its account's sandboxes stay.

    Examples:

        sandboxer keys revoke sbx-pk-…
    """
    with client(url, state_dir) as platform:
        platform.keys.revoke(public_key)
    if json:
        print_json({"public_key": public_key, "revoked": True})
    else:
        out.print(f"revoked {public_key}")


@app.command("cut")
def cut_key(
    name: Annotated[str, typer.Argument(help="A name for people.")],
    scope: Annotated[list[str], typer.Option("--scope", help="What it may do; repeat it.")],
    budget: Annotated[int, typer.Option(min=0, help="Sats, moved from your bucket.")] = 0,
    depth: Annotated[int, typer.Option(min=0, help="Generations it may cut below itself.")] = 0,
    slots: Annotated[int | None, typer.Option(min=0, help="Sandboxes at once.")] = None,
    expires_at: Annotated[str | None, typer.Option(help="When it ends (RFC 3339).")] = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Cut a child key: a part of what this key has, never more. Its secret is shown now and never again.

    Examples:

        sandboxer keys cut worker --scope sandboxes:create --scope exec --budget 1000
    """
    wish = {"budget_sats": budget, "depth": depth, "slots": slots, "expires_at": expires_at}
    with client(url, state_dir) as platform:
        key = platform.keys.cut(name, scope, **wish)
    _show_once(key, json)


@app.command("tree")
def show_tree(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Show this account and every key below it, with what each has spent.

    Examples:

        sandboxer keys tree --json
    """
    with client(url, state_dir) as platform:
        root = platform.keys.tree()
    if json:
        print_json(root)
        return
    out.print(columns(_branches(root, 0), "KEY", "STATE", "GIVEN", "SPENT", "BALANCE", "SUBTREE SPENT"))


def _branches(node: KeyNode, depth: int) -> list[tuple[object, ...]]:
    name = node.account if node.key is None else f"{node.key.name} {node.key.public_key}"
    state = "" if node.key is None else node.key.state
    row = ("  " * depth + name, state, node.given, node.spent, node.balance, node.subtree_spent)
    return [row, *(line for child in node.children for line in _branches(child, depth + 1))]


@app.command("rotate")
def rotate_key(
    public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")],
    wallet: Wallet = None,
    proof: GivenProof = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Give a key a new secret; the old one ends at once. The operator just does; others confirm it.

    Examples:

        sandboxer keys rotate sbx-pk-… --wallet ~/.wallet.key
    """
    with client(url, state_dir, confirm=with_wallet(wallet, proof)) as platform:
        key = platform.keys.regenerate(public_key)
    _show_once(key, json)


@app.command("suspend")
def suspend_key(
    public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")],
    why: Annotated[str, typer.Option(help="Told to whoever holds the secret.")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Let a key sign nothing until it is unsuspended (operator).

    Examples:

        sandboxer keys suspend sbx-pk-… --why "seen in a public repository"
    """
    with client(url, state_dir) as platform:
        platform.keys.suspend(public_key, why=why)
    _tell(public_key, "suspended", json)


@app.command("unsuspend")
def unsuspend_key(
    public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Let a suspended key sign again (operator).

    Examples:

        sandboxer keys unsuspend sbx-pk-…
    """
    with client(url, state_dir) as platform:
        platform.keys.unsuspend(public_key)
    _tell(public_key, "unsuspended", json)


@app.command("expire")
def expire_key(
    public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")],
    at: Annotated[str | None, typer.Option(help="When (RFC 3339).")] = None,
    never: Annotated[bool, typer.Option("--never", help="Not by itself.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Say when a key ends by itself (operator).

    Examples:

        sandboxer keys expire sbx-pk-… --at 2027-01-01T00:00:00Z

        sandboxer keys expire sbx-pk-… --never
    """
    if (at is None) is not never:
        raise typer.BadParameter("say when it ends: --at MOMENT, or --never")
    with client(url, state_dir) as platform:
        platform.keys.set_expiry(public_key, at)
    _tell(public_key, f"expires {at or 'never'}", json)


def _tell(public_key: str, word: str, is_json: bool) -> None:
    if is_json:
        print_json({"public_key": public_key, "done": word})
    else:
        out.print(f"{word} {public_key}")


def _show_once(key: BaseModel, as_json: bool) -> None:
    """A key with its secret, and that this was the only time."""
    if as_json:
        print_json(key)
        return
    facts = key.model_dump(exclude_none=True)
    out.print(facts_table((name, ", ".join(v) if isinstance(v, list) else v) for name, v in facts.items()))
    err.print("[yellow]Keep the secret now: it is not shown again.[/]")
