"""`account create|list|show|…`: what the operator does with accounts."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from sandboxer.edges.cli.options import After, Limit
from sandboxer.edges.cli.output import facts_table
from sandboxer.edges.cli.verbs import Answer, Row, as_it_is, group, noun, rows, verb
from sandboxer.sdk.sync.accounts import Operator
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire import accounts as wire

app = group("Open, look at and close accounts (operator).")
groups = {"account": app}
Named = Annotated[str, typer.Argument(help="Id of the account.", metavar="ACCOUNT")]
Reason = Annotated[str, typer.Option(help="Kept in the audit log.")]
Sats = Annotated[int | None, typer.Option(min=0, help="Sats; no cap if left out.")]


def _opened(made: wire.Account) -> Answer:
    facts = facts_table([("id", made.id), ("public id", made.public_id), ("name", made.name)])
    next_step = f"[dim]next:[/] sandboxer key create NAME --account {made.id}"
    return Answer(made, facts, note=next_step)


of_operator = partial(rows, app, noun("operator"))
of_operator(
    {},
    _opened,
    Row(
        "create",
        Operator.create_account,
        "Open an account.",
        'account create --id search-team --reason "asked by mail"',
        {
            "reason": Reason,
            "id": (Annotated[str | None, typer.Option(help="Its id; one is made up if left out.")], None),
            "name": (Annotated[str, typer.Option(help="A name for people.")], ""),
        },
    ),
)


@verb(app, "list")
def listed(
    platform: Sandboxer,
    after: After = None,
    limit: Limit = 50,
) -> object:
    """List accounts, one page.

    Examples:

        sandboxer account list --limit 100
    """
    return platform.operator.accounts(after=after, limit=limit)


of_operator(
    {"account": Named},
    as_it_is,
    Row("show", Operator.account, "Show an account and what it has.", "account show search-team"),
    Row(
        "suspend",
        Operator.suspend,
        "Let an account do nothing until it is reinstated.",
        'account suspend search-team --reason "asked by mail"',
        {"reason": Reason},
    ),
    Row(
        "reinstate",
        Operator.reinstate,
        "Let a suspended account go on.",
        'account reinstate search-team --reason "asked by mail"',
        {"reason": Reason},
    ),
    Row(
        "delete",
        Operator.close,
        "Close an account for good.",
        'account delete search-team --reason "asked by mail"',
        {"reason": Reason},
    ),
    Row(
        "entitle",
        Operator.entitle,
        "Give a tier until a moment, or take it.",
        "account entitle bob --tier 2 --until 2027-01-01T00:00Z --reason …",
        {
            "reason": Reason,
            "tier": (Annotated[int | None, typer.Option(min=1, help="Left out: none any more.")], None),
            "until": (Annotated[str | None, typer.Option(help="When it ends (RFC 3339).")], None),
        },
    ),
)


@verb(app, "cap")
def cap(
    platform: Sandboxer,
    account: Named,
    reason: Reason,
    per_key: Sats = None,
    per_sandbox: Sats = None,
    per_day: Sats = None,
) -> object:
    """Set all spending caps anew; one that is left out ends.

    Examples:

        sandboxer account cap search-team --per-day 5000 --reason "asked by mail"
    """
    caps = {"per_key_sats": per_key, "per_sandbox_sats": per_sandbox, "per_day_sats": per_day}
    return platform.operator.cap(account, caps, reason=reason)
