"""`credit show|add|transfer|statement` and `pricing`: money in sats."""

from __future__ import annotations

import secrets
from typing import Annotated

import typer

from sandboxer.edges.cli.options import After, Cpus, Disk, Json, Limit, Memory
from sandboxer.edges.cli.output import columns, facts_table, out, plain, until
from sandboxer.edges.cli.verbs import Answer, group, show_pieces, verb
from sandboxer.kernel.values import counted
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.accounts import Balance

app = typer.Typer(rich_markup_mode="rich")
crediting = group("Show, add and move sats.")
groups = {"credit": crediting}
_FREE = (
    "Nothing is charged here. The operator charges by setting prices or a way to be paid: docs/guides/pay.md."
)

Account = Annotated[str | None, typer.Option("--account", help="Another account than one's own (operator).")]
Id = Annotated[
    str | None,
    typer.Option("--id", help="The same id moves money once; random if left out."),
]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is written down.")]


@verb(crediting, "show")
def show(platform: Sandboxer, account: Account = None) -> Answer:
    """Show what an account has, holds and owes.

    Examples:

        sandboxer credit show

        sandboxer credit show --account search-team --json
    """
    report = platform.account.me() if account is None else platform.operator.account(account)
    shown = report.account
    facts = [("account", shown.id), ("public id", shown.public_id), ("status", shown.status)]
    if shown.tier is not None:
        facts.append(("tier", f"{shown.tier} for {until(shown.entitled_until)}"))
    return Answer(report, facts_table([*facts, *_money(report.money)]))


def _money(money: Balance | None) -> list[tuple[str, object]]:
    if money is None:
        return [("money", "none yet")]
    words: list[tuple[str, object]] = [
        ("balance", counted(money.balance, "sat")),
        ("available", counted(money.available, "sat") if money.available != money.balance else None),
        ("held", counted(money.held, "sat") if money.held else None),
        ("reserved", counted(money.reserved, "sat") if money.reserved else None),
        ("debt", counted(money.debt, "sat") if money.debt else None),
        ("spending", f"{money.rate_msats} msats a second" if money.rate_msats else None),
        ("standing", money.standing if money.standing != "alive" else None),
    ]
    return words if money.dry_at is None else [*words, ("runs out", until(money.dry_at))]


@verb(crediting, "add")
def add(
    platform: Sandboxer,
    account: Annotated[str, typer.Argument(help="The account's id.")],
    sats: Annotated[int, typer.Argument(help="How many; below zero takes.")],
    reason: Reason,
    id: Id = None,
) -> Answer:
    """Give sats to an account, or take them; for the operator, and written into the audit log.

    Examples:

        sandboxer credit add search-team 10000 --reason "invoice 17" --id inv-17

        sandboxer credit add search-team --reason "typing slip" -- -500
    """
    chosen = id or secrets.token_hex(8)
    moved = platform.operator.adjust(account, sats, id=chosen, reason=reason)
    return Answer(
        moved, f"{sats:+} sats for {account} ({moved.id})" if moved.is_new else f"done before ({moved.id})"
    )


@verb(crediting, "transfer")
def transfer(
    platform: Sandboxer,
    to: Annotated[str, typer.Argument(help="The receiver's public id (pub_…).")],
    sats: Annotated[int, typer.Argument(help="How many.")],
    reason: Reason = "transfer",
    id: Id = None,
) -> Answer:
    """Give sats of this account to another one.

    Examples:

        sandboxer credit transfer pub_0123… 500 --reason "your share"
    """
    moved = platform.account.send(to, sats, id=id or secrets.token_hex(8), reason=reason)
    return Answer(
        moved,
        f"gave {counted(moved.sats, 'sat')} to {to} ({moved.id})"
        if moved.is_new
        else f"done before ({moved.id})",
    )


@verb(crediting, "statement")
def statement(
    platform: Sandboxer,
    account: Account = None,
    csv: Annotated[bool, typer.Option("--csv", help="The whole history as CSV, oldest first.")] = False,
    after: After = None,
    limit: Limit = 50,
) -> Answer | None:
    """Show the transfers of an account, newest first.

    Examples:

        sandboxer credit statement

        sandboxer credit statement --csv > statement.csv
    """
    if csv:
        typer.echo(platform.account.statement(of=account).decode(), nl=False)
        return None
    page = platform.account.transfers(of=account, cursor=after, limit=limit)
    rows = [
        (one.at.strftime("%Y-%m-%d %H:%M:%S"), one.kind, f"{one.change:+}", one.phase, one.reason, one.id)
        for one in page.transfers
    ]
    return Answer(page, columns(rows, "AT", "KIND", "SATS", "PHASE", "REASON", "ID"))


@verb(app, "pricing")
def pricing(platform: Sandboxer) -> Answer:
    """Show what things cost here.

    Examples:

        sandboxer pricing --json
    """
    prices = platform.account.pricing()
    if not prices.is_charged:
        return Answer(prices, _FREE)
    rows = [
        (one.profile, "free" if one.is_free else f"{one.running_msats}", one.frozen_msats, one.stored_msats)
        for one in prices.profiles
    ]
    monthly = [
        (one.tier, f"${one.usd_cents / 100:.2f}", one.requests_per_minute, one.slots, one.depth)
        for one in prices.tiers
        if one.months == 1
    ]
    return Answer(
        prices,
        columns(rows, "PROFILE", "RUNNING (msats/s)", "FROZEN", "STORED"),
        columns(monthly, "\nTIER", "\nA MONTH", "\nREQUESTS/MIN", "\nFREE SLOTS", "\nDEPTH"),
    )


@verb(app, "quote")
def quote(
    platform: Sandboxer,
    profile: Annotated[str | None, typer.Option(help="Recipe, as in `profile.agent-dev`.")] = None,
    duration: Annotated[str, typer.Option(help="How long it would run: 30m, 4h.")] = "1h",
    vcpus: Cpus = None,
    memory_mb: Memory = None,
    disk_mb: Disk = None,
) -> Answer:
    """Say what a sandbox would cost; one `create --quote` or `update --quote` pays exactly these rates.

    Examples:

        sandboxer quote --profile profile.agent-dev --duration 4h

        sandboxer create --quote $(sandboxer quote --json | jq -r .id)
    """
    wishes = {"vcpus": vcpus, "memory_mb": memory_mb, "disk_mb": disk_mb}
    resources = {field: value for field, value in wishes.items() if value is not None}
    given = platform.account.quote(profile=profile, resources=resources or None, duration=duration)
    if not given.is_charged:
        return Answer(given, _FREE)
    rates = f"{given.running_msats} running, {given.frozen_msats} frozen, {given.stored_msats} stored"
    facts = [
        ("id", given.id),
        ("profile", given.profile),
        (f"for {given.duration}", counted(given.sats, "sat")),
        ("msats a second", rates),
        ("holds until", given.expires_at.strftime("%Y-%m-%d %H:%M:%S %Z")),
    ]
    return Answer(given, facts_table(facts))


@app.callback()
def _entry() -> None:
    """One verb is still a verb."""


@verb(crediting, "usage")
def usage(
    platform: Sandboxer,
    account: Account = None,
    since: Annotated[str | None, typer.Option(help="From when (RFC 3339).")] = None,
    until: Annotated[str | None, typer.Option(help="Until when (RFC 3339).")] = None,
) -> object:
    """Show what was spent, by sandbox and key.

    Examples:

        sandboxer credit usage --since 2027-01-01T00:00:00Z
    """
    return platform.account.usage(of=account, since=since, until=until)


@verb(crediting, "segments")
def segments(
    platform: Sandboxer,
    account: Account = None,
    all_accounts: Annotated[bool, typer.Option("--all-accounts", help="Of everybody (operator).")] = False,
    after: After = None,
    limit: Limit = 50,
) -> object:
    """List what was used, each closed segment once, one page.

    Examples:

        sandboxer credit segments --json
    """
    begin = int(after or 0)
    return platform.account.usage_segments(of=account, all_accounts=all_accounts, after=begin, limit=limit)


@verb(crediting, "sandboxes")
def sandboxes(
    platform: Sandboxer,
    account: Account = None,
    all_accounts: Annotated[bool, typer.Option("--all-accounts", help="Of everybody (operator).")] = False,
    after: After = None,
    limit: Limit = 50,
) -> object:
    """List what each ended sandbox cost in all, each once, one page; as a fin-hub is told.

    Examples:

        sandboxer credit sandboxes --json
    """
    begin = int(after or 0)
    return platform.account.usage_of_sandboxes(
        of=account, all_accounts=all_accounts, after=begin, limit=limit
    )


@verb(crediting, "events")
def events(
    platform: Sandboxer,
    after: Annotated[int, typer.Option(min=0, help="Go on after this event.")] = 0,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="And what happens from now on.")] = False,
    json: Json = False,
) -> None:
    """Show what happened to the account: low, out of sats, funded.

    Examples:

        sandboxer credit events --follow
    """
    found = platform.account.events(after=after, follow=follow)
    show_pieces(
        found,
        lambda event: out.print(event.at.isoformat(), plain(event.kind), plain(event.reason or "")),
        is_json=json,
        is_endless=follow,
    )
