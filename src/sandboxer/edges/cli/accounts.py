"""`accounts create|list|show|…`: what the operator does with accounts, and the operator's books."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.verbs import group, verb
from sandboxer.sdk.sync.client import Sandboxer

app = group("Open, look at and close accounts (operator).")
groups = {"accounts": app}
Account = Annotated[str, typer.Argument(help="Id of the account.", metavar="ACCOUNT")]
Reason = Annotated[str, typer.Option(help="Kept in the audit log.")]
Sats = Annotated[int | None, typer.Option(min=0, help="Sats; no cap if left out.")]


@verb(app, "create")
def create(
    platform: Sandboxer,
    reason: Reason,
    id: Annotated[str | None, typer.Option(help="Its id; one is made up if left out.")] = None,
    name: Annotated[str, typer.Option(help="A name for people.")] = "",
) -> object:
    """Open an account.

    Examples:

        sandboxer accounts create --id search-team --reason "asked by mail"
    """
    return platform.operator.create_account(id=id, name=name, reason=reason)


@verb(app, "list")
def listed(
    platform: Sandboxer,
    after: Annotated[str | None, typer.Option(help="Go on after this account.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many.")] = None,
    json: Json = False,
) -> object:
    """List accounts, one page.

    Examples:

        sandboxer accounts list --limit 100
    """
    page = platform.operator.accounts(after=after, limit=limit)
    return page if json else page.accounts


@verb(app, "show")
def look(platform: Sandboxer, account: Account) -> object:
    """Show an account and what it has.

    Examples:

        sandboxer accounts show search-team
    """
    return platform.operator.account(account)


@verb(app, "suspend")
def suspend(platform: Sandboxer, account: Account, reason: Reason) -> object:
    """Let an account do nothing until it is reinstated.

    Examples:

        sandboxer accounts suspend search-team --reason "asked by mail"
    """
    return platform.operator.suspend(account, reason=reason)


@verb(app, "reinstate")
def reinstate(platform: Sandboxer, account: Account, reason: Reason) -> object:
    """Let a suspended account go on.

    Examples:

        sandboxer accounts reinstate search-team --reason "asked by mail"
    """
    return platform.operator.reinstate(account, reason=reason)


@verb(app, "close")
def close(platform: Sandboxer, account: Account, reason: Reason) -> object:
    """Close an account for good.

    Examples:

        sandboxer accounts close search-team --reason "asked by mail"
    """
    return platform.operator.close(account, reason=reason)


@verb(app, "entitle")
def entitle(
    platform: Sandboxer,
    account: Account,
    reason: Reason,
    tier: Annotated[int | None, typer.Option(min=1, help="Left out: none any more.")] = None,
    until: Annotated[str | None, typer.Option(help="When it ends (RFC 3339).")] = None,
) -> object:
    """Give a tier until a moment, or take it.

    Examples:

        sandboxer accounts entitle search-team --tier 2 --until 2027-01-01T00:00:00Z --reason "a gift"
    """
    return platform.operator.entitle(account, tier=tier, until=until, reason=reason)


@verb(app, "cap")
def cap(
    platform: Sandboxer,
    account: Account,
    reason: Reason,
    per_key: Sats = None,
    per_sandbox: Sats = None,
    per_day: Sats = None,
) -> object:
    """Set all spending caps anew; one that is left out ends.

    Examples:

        sandboxer accounts cap search-team --per-day 5000 --reason "asked by mail"
    """
    caps = {"per_key_sats": per_key, "per_sandbox_sats": per_sandbox, "per_day_sats": per_day}
    return platform.operator.cap(account, caps, reason=reason)


@verb(app, "pay-out")
def pay_out(
    platform: Sandboxer,
    sats: Annotated[int, typer.Argument(min=1, help="How many leave the platform.")],
    id: Annotated[str, typer.Option(help="The same id pays out once.")],
    reason: Reason,
) -> object:
    """Write down that earned sats left the platform.

    Examples:

        sandboxer accounts pay-out 100000 --id 2027-01 --reason "to the owner"
    """
    return platform.operator.pay_out(sats, id=id, reason=reason)


@verb(app, "totals")
def totals(platform: Sandboxer, json: Json = False) -> object:
    """Show what all ledger accounts of each kind hold.

    Examples:

        sandboxer accounts totals --json
    """
    found = platform.operator.ledger_totals()
    return found if json else found.totals


@verb(app, "audit")
def audit(
    platform: Sandboxer,
    after: Annotated[int | None, typer.Option(help="Go on after this number.")] = None,
    subject: Annotated[str | None, typer.Option(help="Only of this thing.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="How many.")] = None,
    json: Json = False,
) -> object:
    """List who did what, oldest first, one page.

    Examples:

        sandboxer accounts audit --subject search-team
    """
    page = platform.operator.audit(after=after, subject=subject, limit=limit)
    return page if json else page.entries
