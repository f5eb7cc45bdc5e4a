"""`keys create|list|revoke|cut|tree|rotate|suspend|unsuspend|expire`: who may call, and with how much."""

from __future__ import annotations

from typing import Annotated

import typer
from pydantic import BaseModel

from sandboxer.edges.cli.output import ago, columns, facts_table
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.keys import KeyNode

app = group("Make, delegate, list and end keys.")
groups = {"keys": app}


@verb(app, "create")
def create_key(
    platform: Sandboxer,
    name: Annotated[str, typer.Argument(help="A name for people.")],
    account: Annotated[str, typer.Option(help="Whose sandboxes it sees.")] = "default",
    accepts_v1: Annotated[
        bool, typer.Option("--accepts-v1", help="Also accept version 1 signatures (no replay protection).")
    ] = False,
) -> object:
    """Make a key. Its secret is shown now and never again.

    Examples:

        sandboxer keys create laptop --account search-team
    """
    return _show_once(platform.keys.create(name, account, accepts_v1=accepts_v1))


@verb(app, "list")
def list_keys(platform: Sandboxer) -> Answer:
    """List keys.

    Examples:

        sandboxer keys list --json
    """
    keys = platform.keys.list()
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
    return Answer(list(keys), columns(rows, "KEY", "NAME", "ACCOUNT", "", "SIGNATURES", "CREATED", ""))


@verb(app, "revoke")
def revoke_key(
    platform: Sandboxer, public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")]
) -> Answer:
    """End a key at once, and every key that was cut from it. Its account's sandboxes stay.

    Examples:

        sandboxer keys revoke sbx-pk-…
    """
    platform.keys.revoke(public_key)
    return Answer({"public_key": public_key, "revoked": True}, f"revoked {public_key}")


@verb(app, "cut")
def cut_key(
    platform: Sandboxer,
    name: Annotated[str, typer.Argument(help="A name for people.")],
    scope: Annotated[list[str], typer.Option("--scope", help="What it may do; repeat it.")],
    budget: Annotated[int, typer.Option(min=0, help="Sats, moved from your bucket.")] = 0,
    depth: Annotated[int, typer.Option(min=0, help="Generations it may cut below itself.")] = 0,
    slots: Annotated[int | None, typer.Option(min=0, help="Sandboxes at once.")] = None,
    expires_at: Annotated[str | None, typer.Option(help="When it ends (RFC 3339).")] = None,
) -> object:
    """Cut a child key: a part of what this key has, never more. Its secret is shown now and never again.

    Examples:

        sandboxer keys cut worker --scope sandboxes:create --scope exec --budget 1000
    """
    wish = {"budget_sats": budget, "depth": depth, "slots": slots, "expires_at": expires_at}
    return _show_once(platform.keys.cut(name, scope, **wish))


@verb(app, "tree")
def show_tree(platform: Sandboxer) -> Answer:
    """Show this account and every key below it, with what each has spent.

    Examples:

        sandboxer keys tree --json
    """
    root = platform.keys.tree()
    return Answer(
        root, columns(_branches(root, 0), "KEY", "STATE", "GIVEN", "SPENT", "BALANCE", "SUBTREE SPENT")
    )


def _branches(node: KeyNode, depth: int) -> list[tuple[object, ...]]:
    name = node.account if node.key is None else f"{node.key.name} {node.key.public_key}"
    state = "" if node.key is None else node.key.state
    row = ("  " * depth + name, state, node.given, node.spent, node.balance, node.subtree_spent)
    return [row, *(line for child in node.children for line in _branches(child, depth + 1))]


@verb(app, "rotate", may_need_proof=True)
def rotate_key(
    platform: Sandboxer, public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")]
) -> object:
    """Give a key a new secret; the old one ends at once. The operator just does; others confirm it.

    Examples:

        sandboxer keys rotate sbx-pk-… --wallet ~/.wallet.key
    """
    return _show_once(platform.keys.regenerate(public_key))


@verb(app, "suspend")
def suspend_key(
    platform: Sandboxer,
    public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")],
    why: Annotated[str, typer.Option(help="Told to whoever holds the secret.")],
) -> Answer:
    """Let a key sign nothing until it is unsuspended (operator).

    Examples:

        sandboxer keys suspend sbx-pk-… --why "seen in a public repository"
    """
    platform.keys.suspend(public_key, why=why)
    return _done(public_key, "suspended")


@verb(app, "unsuspend")
def unsuspend_key(
    platform: Sandboxer,
    public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")],
) -> Answer:
    """Let a suspended key sign again (operator).

    Examples:

        sandboxer keys unsuspend sbx-pk-…
    """
    platform.keys.unsuspend(public_key)
    return _done(public_key, "unsuspended")


@verb(app, "expire")
def expire_key(
    platform: Sandboxer,
    public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")],
    at: Annotated[str | None, typer.Option(help="When (RFC 3339).")] = None,
    never: Annotated[bool, typer.Option("--never", help="Not by itself.")] = False,
) -> Answer:
    """Say when a key ends by itself (operator).

    Examples:

        sandboxer keys expire sbx-pk-… --at 2027-01-01T00:00:00Z

        sandboxer keys expire sbx-pk-… --never
    """
    if (at is None) is not never:
        raise typer.BadParameter("say when it ends: --at MOMENT, or --never")
    platform.keys.set_expiry(public_key, at)
    return _done(public_key, f"expires {at or 'never'}")


def _done(public_key: str, word: str) -> Answer:
    return Answer({"public_key": public_key, "done": word}, f"{word} {public_key}")


def _show_once(key: BaseModel) -> Answer:
    """A key with its secret, and that this was the only time."""
    facts = key.model_dump(exclude_none=True)
    shown = facts_table((name, ", ".join(v) if isinstance(v, list) else v) for name, v in facts.items())
    return Answer(key, shown, note="[yellow]Keep the secret now: it is not shown again.[/]")


@verb(app, "check")
def check(
    platform: Sandboxer, public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")]
) -> object:
    """Say whether a key is known and may sign.

    Examples:

        sandboxer keys check sbx-pk-…
    """
    return platform.keys.validate(public_key)


@verb(app, "top-up")
def top_up(
    platform: Sandboxer,
    public_key: Annotated[str, typer.Argument(help="The public key (sbx-pk-…).")],
    sats: Annotated[int, typer.Argument(min=1, help="How many, from your bucket.")],
    id: Annotated[str, typer.Option(help="The same id gives once.")],
) -> object:
    """Give a child key more sats.

    Examples:

        sandboxer keys top-up sbx-pk-… 1000 --id 2027-01-01
    """
    return platform.keys.top_up(public_key, sats, id=id)
