"""`webhook create|list|show|update|delete|test|deliveries|redeliver|rotate`: be told of what happens."""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.options import After, Limit
from sandboxer.edges.cli.output import columns, facts_table, plain, until
from sandboxer.edges.cli.verbs import Answer, Row, as_it_is, gone, group, rows, verb
from sandboxer.kernel.errors import Ambiguous, NotFound
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.platform import Webhooks
from sandboxer.wire.webhooks import Delivery, NewWebhook

telling = group("Be told of what happens, by signed requests.")
groups = {"webhook": telling}

Id = Annotated[str, typer.Argument(help="Id of the webhook (whk_…), or its beginning.", metavar="ID")]
# Stands for the messages that brought their own URL.
ONCE = "once"
_WHOLE_ID = re.compile("whk_[0-9a-hjkmnp-tv-z]{26}")
Kinds = Annotated[
    list[str] | None,
    typer.Option(
        "--kind", help="Which events it gets: sandbox.ready, usage.*, …; repeatable. All if left out."
    ),
]


def _show_delivery(sent: Delivery) -> Answer:
    tries = [
        (one.at.strftime("%H:%M:%S"), one.status or "", one.outcome, one.reason, f"{one.took_ms} ms")
        for one in sent.attempts
    ]
    facts = facts_table([("id", sent.id), ("state", sent.state), ("next try", until(sent.next_try_at))])
    seen = Group(facts, columns(tries, "AT", "STATUS", "OUTCOME", "REASON", "TOOK"))
    return Answer(sent, seen, code=0 if sent.state == "delivered" else Exit.ERROR)


@verb(telling, "create")
def add(
    platform: Sandboxer,
    target: Annotated[str, typer.Argument(help="Where to: an https URL.", metavar="TARGET")],
    kind: Kinds = None,
    all_accounts: Annotated[
        bool, typer.Option("--all-accounts", help="Hear of every account (operator).")
    ] = False,
) -> object:
    """Send what happens to a URL; prints the secret, once.

    Examples:

        sandboxer webhook create https://example.com/hook --kind "sandbox.*"

        sandboxer webhook create https://example.com/bill --all-accounts
    """
    return _show_secret(platform.webhooks.create(target, kinds=kind, all_accounts=all_accounts))


@verb(telling, "list")
def listed(platform: Sandboxer) -> Answer:
    """List this account's webhooks.

    Examples:

        sandboxer webhook list --json
    """
    found = platform.webhooks.list()
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
    table = columns(rows, "ID", "URL", "KINDS", "OF", "STATE")
    return Answer(found, table, make="webhook create URL")


def _whole(platform: Sandboxer, word: str) -> str:
    """The id that is meant, by itself or by its beginning."""
    fits = [] if word == ONCE else [one.id for one in platform.webhooks.list() if one.id.startswith(word)]
    if len(fits) > 1:
        raise Ambiguous(what="webhook", word=word, listed=", ".join(fits))
    if not fits and not _WHOLE_ID.fullmatch(word) and word != ONCE:
        raise NotFound(what="webhook", id=word, hint="See what there is: sandboxer webhook list.")
    return fits[0] if fits else word


def _hooks(platform: Sandboxer, given: dict[str, Any]) -> Webhooks:
    given["webhook_id"] = _whole(platform, given["webhook_id"])
    return platform.webhooks


of_webhooks = partial(rows, telling, _hooks, {"webhook_id": Id})
of_webhooks(
    _show_delivery,
    Row(
        "test",
        Webhooks.test,
        "Send a test message now, and say how that went; exit code 1 if it was not accepted.",
        "webhook test whk_0123…",
    ),
)


@verb(telling, "deliveries")
def deliveries(
    platform: Sandboxer,
    id: Id,
    state: Annotated[
        str | None, typer.Option("--state", help="pending, retrying, delivered or dead.")
    ] = None,
    after: After = None,
    limit: Limit = 50,
) -> Answer:
    """Show what was sent and what waits, newest first.

    Examples:

        sandboxer webhook deliveries whk_0123… --state dead
    """
    page = platform.webhooks.deliveries(_whole(platform, id), state=state, cursor=after, limit=limit)
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
    return Answer(page, columns(rows, "ID", "KIND", "STATE", "TRIES", "REASON", "NEXT TRY"))


of_webhooks(
    _show_delivery,
    Row(
        "redeliver",
        Webhooks.redeliver,
        "Send a message again now, whatever became of it.",
        "webhook redeliver whk_0123… dlv_0123…",
        {
            "delivery_id": Annotated[
                str, typer.Argument(help="Id of the delivery (dlv_…).", metavar="DELIVERY")
            ]
        },
    ),
)


@verb(telling, "rotate")
def rotate(
    platform: Sandboxer,
    id: Annotated[str, typer.Argument(help="Id of the webhook, or `once`.", metavar="ID")],
    overlap: Annotated[
        str, typer.Option("--overlap", help="How long the old secret signs beside the new one.")
    ] = "24h",
) -> object:
    """Give a webhook a new secret; prints it, once.

    Examples:

        sandboxer webhook rotate whk_0123… --overlap 2h

        sandboxer webhook rotate once
    """
    return _show_secret(platform.webhooks.rotate_secret(_whole(platform, id), overlap=overlap))


@verb(telling, "update")
def change(
    platform: Sandboxer,
    id: Id,
    target: Annotated[str | None, typer.Option("--target", help="Another URL.")] = None,
    kind: Kinds = None,
    enabled: Annotated[bool | None, typer.Option("--on/--off", help="Switch it on or off.")] = None,
) -> Answer:
    """Change where a webhook goes, which events it gets, or switch it off and on.

    Examples:

        sandboxer webhook update whk_0123… --off
    """
    changed = platform.webhooks.change(_whole(platform, id), url=target, kinds=kind, enabled=enabled)
    return Answer(changed, plain(f"{changed.id} is {'on' if changed.enabled else 'off'}: {changed.url}"))


@verb(telling, "delete")
def remove(platform: Sandboxer, id: Id) -> Answer:
    """Remove a webhook; what waits is not sent.

    Examples:

        sandboxer webhook delete whk_0123…
    """
    id = _whole(platform, id)
    platform.webhooks.remove(id)
    return gone(id=id)


def _show_secret(made: NewWebhook) -> Answer:
    facts = [("id", made.id), ("url", made.url), ("kinds", " ".join(made.kinds)), ("secret", made.secret)]
    return Answer(made, Group(facts_table(facts), Text("The secret is not shown again.", style="yellow")))


of_webhooks(
    as_it_is,
    Row("show", Webhooks.get, "Show one webhook.", "webhook show whk_0123456789abcdefghjkmnpqrs"),
)
