"""`webhooks add|list|test|deliveries|redeliver|rotate|set|remove`: be told of what happens."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import columns, facts_table, out, print_json, until
from sandboxer.wire.webhooks import Delivery, NewWebhook

telling = typer.Typer(
    help="Be told of what happens, by signed requests.", no_args_is_help=True, rich_markup_mode="rich"
)
groups = {"webhooks": telling}

Id = Annotated[str, typer.Argument(help="Id of the webhook (whk_…).", metavar="ID")]
Kinds = Annotated[
    list[str] | None,
    typer.Option("--kind", help="What it hears of: sandbox.ready, usage.*, …; repeatable. All if left out."),
]


@telling.command("add")
def add(
    target: Annotated[str, typer.Argument(help="Where to: an https URL.", metavar="TARGET")],
    kind: Kinds = None,
    all_accounts: Annotated[
        bool, typer.Option("--all-accounts", help="Hear of every account (operator).")
    ] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Send what happens to a URL; prints the secret, once.

    Examples:

        sandboxer webhooks add https://example.com/hook --kind "sandbox.*" --kind "account.*"

        sandboxer webhooks add https://billing.example.com/hook --kind "usage.*" --all-accounts
    """
    with client(url, state_dir) as platform:
        made = platform.webhooks.create(target, kinds=kind, all_accounts=all_accounts)
    _show_secret(made, json=json)


@telling.command("list")
def listed(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """List this account's webhooks.

    Examples:

        sandboxer webhooks list --json
    """
    with client(url, state_dir) as platform:
        found = platform.webhooks.list()
    if json:
        print_json(found)
        return
    rows = [
        (
            one.id,
            one.url,
            " ".join(one.kinds),
            "all accounts" if one.all_accounts else one.account,
            "on" if one.enabled else f"off: {one.disabled_reason}",
        )
        for one in found
    ]
    out.print(columns(rows, "ID", "URL", "KINDS", "OF", "STATE"))


@telling.command("test")
def try_now(id: Id, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Send a test message now, and say how that went; exit code 1 if it was not accepted.

    Examples:

        sandboxer webhooks test whk_0123…
    """
    with client(url, state_dir) as platform:
        sent = platform.webhooks.test(id)
    _show_delivery(sent, json=json)


@telling.command("deliveries")
def deliveries(
    id: Id,
    state: Annotated[
        str | None, typer.Option("--state", help="pending, retrying, delivered or dead.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500, help="How many of the newest.")] = 50,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Show what was sent and what waits, newest first.

    Examples:

        sandboxer webhooks deliveries whk_0123… --state dead
    """
    with client(url, state_dir) as platform:
        page = platform.webhooks.deliveries(id, state=state, limit=limit)
    if json:
        print_json(page)
        return
    rows = [
        (
            one.id,
            one.kind,
            one.state,
            len(one.attempts),
            one.reason,
            until(one.next_try_at),
        )
        for one in page.deliveries
    ]
    out.print(columns(rows, "ID", "KIND", "STATE", "TRIES", "REASON", "NEXT TRY"))


@telling.command("redeliver")
def redeliver(
    id: Id,
    delivery: Annotated[str, typer.Argument(help="Id of the delivery (dlv_…).")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Send a message again now, whatever became of it.

    Examples:

        sandboxer webhooks redeliver whk_0123… dlv_0123…
    """
    with client(url, state_dir) as platform:
        sent = platform.webhooks.redeliver(id, delivery)
    _show_delivery(sent, json=json)


@telling.command("rotate")
def rotate(
    id: Annotated[str, typer.Argument(help="Id of the webhook, or `once`.", metavar="ID")],
    overlap: Annotated[
        str, typer.Option("--overlap", help="How long the old secret signs beside the new one.")
    ] = "24h",
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Give a webhook a new secret; prints it, once.

    Examples:

        sandboxer webhooks rotate whk_0123… --overlap 2h

        sandboxer webhooks rotate once
    """
    with client(url, state_dir) as platform:
        made = platform.webhooks.rotate_secret(id, overlap=overlap)
    _show_secret(made, json=json)


@telling.command("set")
def change(
    id: Id,
    target: Annotated[str | None, typer.Option("--target", help="Another URL.")] = None,
    kind: Kinds = None,
    enabled: Annotated[bool | None, typer.Option("--on/--off", help="Switch it on or off.")] = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Change where a webhook goes, what it hears of, or switch it off and on.

    Examples:

        sandboxer webhooks set whk_0123… --off
    """
    with client(url, state_dir) as platform:
        changed = platform.webhooks.change(id, url=target, kinds=kind, enabled=enabled)
    if json:
        print_json(changed)
    else:
        out.print(f"{changed.id} is {'on' if changed.enabled else 'off'}: {changed.url}", markup=False)


@telling.command("remove")
def remove(id: Id, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Remove a webhook; what waits is not sent.

    Examples:

        sandboxer webhooks remove whk_0123…
    """
    with client(url, state_dir) as platform:
        platform.webhooks.remove(id)
    if json:
        print_json({"id": id, "removed": True})
    else:
        out.print(f"removed {id}", markup=False)


def _show_secret(made: NewWebhook, *, json: bool) -> None:
    if json:
        print_json(made)
        return
    facts = [("id", made.id), ("url", made.url), ("kinds", " ".join(made.kinds)), ("secret", made.secret)]
    out.print(facts_table(facts))
    out.print("The secret is not shown again.", style="yellow")


def _show_delivery(sent: Delivery, *, json: bool) -> None:
    if json:
        print_json(sent)
    else:
        tries = [
            (one.at.strftime("%H:%M:%S"), one.status or "", one.outcome, one.reason, f"{one.took_ms} ms")
            for one in sent.attempts
        ]
        out.print(
            facts_table([("id", sent.id), ("state", sent.state), ("next try", until(sent.next_try_at))])
        )
        out.print(columns(tries, "AT", "STATUS", "OUTCOME", "REASON", "TOOK"))
    if sent.state != "delivered":
        raise typer.Exit(Exit.ERROR)
