"""`key create|list|update|delete|delegate|allow|tree|rotate|bearer|…`: who may call, with how much."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import typer
from pydantic import BaseModel

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.output import ago, columns, err, facts_table, plain
from sandboxer.edges.cli.verbs import Answer, Row, as_it_is, group, rows, verb
from sandboxer.kernel.errors import Ambiguous, NotFound
from sandboxer.sdk.credentials import NOBODY
from sandboxer.sdk.errors import NotFound as Missing
from sandboxer.sdk.errors import Refused
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.platform import Keys
from sandboxer.wire.keys import KeyNode

app = group("Make, delegate, list and end keys.")
groups = {"key": app}
PublicKey = Annotated[str, typer.Argument(help="The public key (sbx-pk-…), or its name.", metavar="KEY")]


def account_named(platform: Sandboxer, account: str | None, *, opens: bool) -> str:
    """Returns whose key is to be made. Raises NotFound for an account that is not there: a wrong letter
    would open another, and its key would see nothing.
    """
    if account is None or opens:
        return account or "default"
    try:
        platform.operator.account(account)
    except Refused as error:
        # Only the operator may look; the platform says whether another may have a key of it.
        if isinstance(error, Missing):
            how = f"Open it: sandboxer account create --id {account} --reason WHY; or say --open here."
            raise NotFound(what="account", id=account, hint=how) from None
    return account


@verb(app, "create")
def create_key(
    platform: Sandboxer,
    name: Annotated[str, typer.Argument(help="A name for people.")],
    account: Annotated[str | None, typer.Option(help="Id of its account; without it: default.")] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the account if there is none.")] = False,
    accepts_v1: Annotated[
        bool, typer.Option("--accepts-v1", help="Also accept version 1 signatures (no replay protection).")
    ] = False,
) -> object:
    """Make a key. Its secret is shown now and never again.

    Examples:

        sandboxer key create laptop --account search-team

        sandboxer key create laptop --account anna --open
    """
    named = account_named(platform, account, opens=opens)
    return _show_once(platform.keys.create(name, named, accepts_v1=accepts_v1))


@verb(app, "list")
def list_keys(platform: Sandboxer) -> Answer:
    """List keys.

    Examples:

        sandboxer key list --json
    """
    keys = platform.keys.list()
    rows = [
        (
            key.public_key,
            key.name,
            "revoked" if key.revoked_at else "suspended" if key.suspended_at else "active",
            "owner" if key.is_owner else key.account,
            "v1, v2" if key.accepts_v1 else "v2",
            ago(key.created_at),
        )
        for key in keys
    ]
    return Answer(list(keys), columns(rows, "KEY", "NAME", "STATE", "ACCOUNT", "SIGNATURES", "CREATED"))


@verb(app, "delete")
def delete_key(platform: Sandboxer, public_key: PublicKey) -> Answer:
    """End a key at once, and every key that was delegated from it. Its account's sandboxes stay.

    Examples:

        sandboxer key delete worker
    """
    public_key = _whole(platform, public_key)
    platform.keys.revoke(public_key)
    return _done(platform, public_key, "revoked")


@verb(app, "delegate")
def delegate_key(
    platform: Sandboxer,
    name: Annotated[str, typer.Argument(help="A name for people.")],
    scope: Annotated[list[str], typer.Option("--scope", help="What it may do; repeat it.")],
    budget: Annotated[int, typer.Option(min=0, help="Sats, moved from your balance.")] = 0,
    depth: Annotated[int, typer.Option(min=0, help="Generations it may delegate to below itself.")] = 0,
    slots: Annotated[int | None, typer.Option(min=0, help="Sandboxes at once.")] = None,
    expires_at: Annotated[str | None, typer.Option(help="When it ends (RFC 3339).")] = None,
) -> object:
    """Delegate a part of what this key has to a child key. Its secret is shown now and never again.

    Examples:

        sandboxer key delegate worker --scope sandboxes:create --slots 1
    """
    wish = {"budget_sats": budget, "depth": depth, "slots": slots, "expires_at": expires_at}
    return _show_once(platform.keys.delegate(name, scope, **wish))


@verb(app, "allow", may_need_proof=True)
def allow_client(
    platform: Sandboxer,
    code: Annotated[str, typer.Argument(help="The code that your browser shows.")],
    budget: Annotated[int, typer.Option(min=0, help="Sats, moved from your balance.")] = 0,
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", help="What it may do; repeat it. Default: what it asked for."),
    ] = None,
    slots: Annotated[int | None, typer.Option(min=0, help="Sandboxes at once.")] = None,
    expires_at: Annotated[
        str | None, typer.Option(help="When it ends (RFC 3339). Default: in 30 days.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    refuse: Annotated[bool, typer.Option("--refuse", help="Tell it that it may not.")] = False,
) -> Answer:
    """Let a program act for you that asked in your browser: it gets a key of its own, which you can delete.

    Examples:

        sandboxer key allow BCDF-GHJK --slots 2

        sandboxer key allow BCDF-GHJK --refuse
    """
    if refuse:
        platform.keys.refuse(code)
        return Answer({"code": code, "refused": True}, "refused", code)
    asks = platform.keys.asking(code)
    if not yes:
        err.print(plain(f"{asks.client_name} asks to act for you; its answer goes to {asks.answered_at}."))
        typer.confirm("Did you begin this, and is it allowed?", abort=True, err=True)
    wish = {"budget_sats": budget, "scopes": scope, "slots": slots, "expires_at": expires_at}
    asks = platform.keys.allow(code, **wish)
    return Answer(asks, "allowed", plain(asks.client_name), note="Your browser goes on by itself.")


@verb(app, "tree")
def show_tree(platform: Sandboxer) -> Answer:
    """Show this account and every key below it, with what each has spent.

    Examples:

        sandboxer key tree --json
    """
    root = platform.keys.tree()
    rows = _branches(root, 0)
    # Where nobody pays anything there are no figures to look at.
    shown = 7 if any(any(row[3:]) for row in rows) else 3
    names = ("NAME", "ID", "STATE", "GIVEN", "SPENT", "BALANCE", "SUBTREE SPENT")
    return Answer(root, columns([row[:shown] for row in rows], *names[:shown]))


def _branches(node: KeyNode, depth: int) -> list[tuple[object, ...]]:
    name, id_, state = node.account, "", ""
    if node.key is not None:
        name, id_, state = node.key.name, node.key.public_key, node.key.state
    row = ("  " * depth + name, id_, state, node.given, node.spent, node.balance, node.subtree_spent)
    return [row, *(line for child in node.children for line in _branches(child, depth + 1))]


@verb(app, "rotate", may_need_proof=True)
def rotate_key(platform: Sandboxer, public_key: PublicKey) -> object:
    """Give a key a new secret; the old one ends at once. The operator just does; others confirm it.

    Examples:

        sandboxer key rotate sbx-pk-… --wallet ~/.wallet.key
    """
    return _show_once(platform.keys.regenerate(_whole(platform, public_key)))


@verb(app, "bearer", may_need_proof=True)
def bearer_token(
    platform: Sandboxer,
    public_key: Annotated[
        str | None,
        typer.Argument(help="Its name or sbx-pk-…. Default: the key you sign with.", metavar="KEY"),
    ] = None,
    end: Annotated[bool, typer.Option("--end", help="End its token instead; the key goes on.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print the token alone.")] = False,
) -> Answer:
    """Make a token for `Authorization: Bearer …`, shown once; an older one of this key ends at once.

    It works on the platform's own host and by TLS. Where others can read what is sent, sign instead.

    Examples:

        sandboxer key bearer

        curl -H "Authorization: Bearer sk_…" http://127.0.0.1:7777/v1/sandboxes

        sandboxer key bearer sbx-pk-… --end
    """
    own = _whole(platform, public_key) if public_key else platform.credentials.public_key
    if not own or own == NOBODY:
        raise CommandFailed(
            "no key is named, and a bearer token does not say whose it is",
            next_step="Run: sandboxer key bearer sbx-pk-… (sandboxer key list shows yours)",
        )
    if end:
        platform.keys.end_bearer(own)
        return _done(platform, own, "its bearer token has ended")
    made = platform.keys.issue_bearer(own)
    if quiet:
        return Answer(made, made.bearer_token, soft_wrap=True)
    shown = facts_table([("key", made.public_key), ("bearer token", made.bearer_token)])
    return Answer(
        made, shown, note="[yellow]Keep it now: it is not shown again, and an older one has ended.[/]"
    )


@verb(app, "suspend")
def suspend_key(
    platform: Sandboxer,
    public_key: PublicKey,
    why: Annotated[str, typer.Option(help="Told to whoever holds the secret.")],
) -> Answer:
    """Let a key sign nothing until it is reinstated (operator).

    Examples:

        sandboxer key suspend sbx-pk-… --why "seen in a public repository"
    """
    public_key = _whole(platform, public_key)
    platform.keys.suspend(public_key, why=why)
    return _done(platform, public_key, "suspended")


@verb(app, "reinstate")
def reinstate_key(
    platform: Sandboxer,
    public_key: PublicKey,
) -> Answer:
    """Let a suspended key sign again (operator).

    Examples:

        sandboxer key reinstate sbx-pk-…
    """
    public_key = _whole(platform, public_key)
    platform.keys.unsuspend(public_key)
    return _done(platform, public_key, "reinstated")


@verb(app, "update")
def update_key(
    platform: Sandboxer,
    public_key: PublicKey,
    expires_at: Annotated[str | None, typer.Option(help="When it ends (RFC 3339).")] = None,
    never: Annotated[bool, typer.Option("--never-expires", help="It does not end by itself.")] = False,
) -> Answer:
    """Say when a key ends by itself (operator).

    Examples:

        sandboxer key update sbx-pk-… --expires-at 2027-01-01T00:00:00Z

        sandboxer key update sbx-pk-… --never-expires
    """
    if (expires_at is None) is not never:
        raise typer.BadParameter("say when it ends: --expires-at MOMENT, or --never-expires")
    public_key = _whole(platform, public_key)
    platform.keys.set_expiry(public_key, expires_at)
    return _done(platform, public_key, f"expires {expires_at or 'never'}")


def _whole(platform: Sandboxer, word: str) -> str:
    """The public key that is meant: by itself, or by the name of a living key that no other one has."""
    if word.startswith("sbx-pk-"):
        return word
    fits = [key for key in platform.keys.list() if key.name == word and key.revoked_at is None]
    if len(fits) == 1:
        return fits[0].public_key
    if not fits:
        raise NotFound(what="key", id=word, hint="See what there is: sandboxer key list.")
    raise Ambiguous(what="key", word=word, listed=", ".join(key.public_key for key in fits))


def _done(platform: Sandboxer, public_key: str, word: str) -> Answer:
    return Answer(platform.keys.validate(public_key), f"{word} {public_key}")


def _show_once(key: BaseModel) -> Answer:
    """A key with its secret, how it is used, and that this was the only time."""
    facts = {name: value for name, value in key.model_dump(exclude_none=True).items() if value is not False}
    shown = facts_table((name.replace("_", " "), _words(value)) for name, value in facts.items())
    use = "[dim]to use it:[/] set SANDBOXER_PUBLIC_KEY and SANDBOXER_SECRET_KEY"
    return Answer(key, shown, note=f"[yellow]Keep the secret now: it is not shown again.[/]\n{use}")


def _words(value: object) -> object:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S UTC")
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def _keys(platform: Sandboxer, given: dict[str, Any]) -> Keys:
    given["public_key"] = _whole(platform, given["public_key"])
    return platform.keys


rows(
    app,
    _keys,
    {"public_key": PublicKey},
    as_it_is,
    Row("check", Keys.validate, "Say whether a key is known and may sign.", "key check sbx-pk-…"),
    Row(
        "top-up",
        Keys.top_up,
        "Give a child key more sats.",
        "key top-up sbx-pk-… 1000 --id 2027-01-01",
        {
            "sats": Annotated[int, typer.Argument(min=1, help="How many, from your balance.")],
            "id": Annotated[str, typer.Option(help="The same id gives once.")],
        },
    ),
)
