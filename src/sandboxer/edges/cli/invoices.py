"""`invoices create|show|list|look`, `refunds list|sent` and `rates`: paying in coins, and taking them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.progress import BarColumn, Progress, TextColumn

from sandboxer.edges import qr
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, facts_table, out, print_answer, print_json, until
from sandboxer.edges.cli.verbs import Answer, verb
from sandboxer.sdk.credentials import NOBODY
from sandboxer.sdk.errors import MissingCredentials, SdkError
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.invoices import Invoice, NewInvoice

app = typer.Typer(rich_markup_mode="rich")
paying = typer.Typer(help="Pay in coins, by invoice.", no_args_is_help=True, rich_markup_mode="rich")
returning = typer.Typer(help="What has to go back (operator).", no_args_is_help=True, rich_markup_mode="rich")
groups = {"invoices": paying, "refunds": returning}

Id = Annotated[str, typer.Argument(help="Id of the invoice (inv_…).", metavar="ID")]


@paying.command("create")
def create(
    currency: Annotated[str, typer.Argument(help="BTC, LTC, DOGE or XMR.")],
    tier: Annotated[int | None, typer.Option(help="A tier, with --months.")] = None,
    months: Annotated[int | None, typer.Option(help="For how long.")] = None,
    sats: Annotated[int | None, typer.Option(help="Sats instead of a tier.")] = None,
    account: Annotated[
        str | None, typer.Option(help="Public id of an account; without it a new one gets a key.")
    ] = None,
    refund_address: Annotated[
        str | None, typer.Option(help="Where late or too small payments go back, less 9 %.")
    ] = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Wait for the payment and show its progress.")
    ] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Ask for an address and an exact amount. Needs no key: whoever pays gets one.

    Examples:

        sandboxer invoices create XMR --tier 1 --months 3 --watch

        sandboxer invoices create LTC --sats 100000 --account pub_0123… --json
    """
    with _anyone(url, state_dir) as platform:
        made = platform.invoices.create(
            currency.upper(),
            tier=tier,
            months=months,
            sats=sats,
            account=account,
            refund_address=refund_address,
        )
        if json:
            print_json(made)
        else:
            _print_bill(made)
        if not watch:
            return
        seen = _watch(platform, made.id, is_quiet=json)
        _print_end(platform, made, seen, json)


@paying.command("show")
def show(
    id: Id,
    watch: Annotated[bool, typer.Option("--watch", help="Stay until it is settled.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Show what has arrived for an invoice and what became of it.

    Examples:

        sandboxer invoices show inv_0123… --watch
    """
    with _anyone(url, state_dir) as platform:
        seen = _watch(platform, id, is_quiet=json) if watch else platform.invoices.get(id)
    if json:
        print_json(seen)
    else:
        _print_invoice(seen)


@verb(paying, "list")
def listing(
    platform: Sandboxer,
    state: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
) -> Answer:
    """List invoices, newest first (operator).

    Examples:

        sandboxer invoices list --state confirming
    """
    found = platform.invoices.page(state=state, limit=limit)
    rows = [
        (one.id, one.state, one.kind, f"{one.amount} {one.currency}", one.sats, ago(one.created_at))
        for one in found.invoices
    ]
    return Answer(found, columns(rows, "ID", "STATE", "FOR", "AMOUNT", "SATS", "CREATED"))


@paying.command("look")
def look(id: Id, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Look at an invoice's address now, also if it ended long ago (operator).

    Examples:

        sandboxer invoices look inv_0123…
    """
    with client(url, state_dir) as platform:
        seen = platform.invoices.look(id)
    if json:
        print_json(seen)
    else:
        _print_invoice(seen)


@verb(returning, "list")
def refunds(
    platform: Sandboxer,
    state: Annotated[
        Literal["queued", "sending", "sent", "confirmed", "withdrawn"] | None,
        typer.Option(help="Only those in this state."),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
) -> Answer:
    """List refunds, oldest first. Each spends the very output it returns.

    Examples:

        sandboxer refunds list --state queued --json
    """
    found = platform.invoices.refunds(state=state, limit=limit)
    rows = [
        (
            one.id,
            one.state,
            one.reason,
            f"{one.amount} {one.currency}",
            one.address,
            f"{one.txid}:{one.output}",
            one.held or "",
        )
        for one in found.refunds
    ]
    return Answer(found, columns(rows, "ID", "STATE", "WHY", "AMOUNT", "TO", "SPENDS", "HELD"))


@verb(returning, "sent")
def sent(
    platform: Sandboxer,
    id: Annotated[str, typer.Argument(help="Id of the refund (rfd_…).", metavar="ID")],
    txid: Annotated[str, typer.Argument(help="The transaction it was sent in.")],
) -> Answer:
    """Say that a refund was signed and sent.

    Examples:

        sandboxer refunds sent rfd_0123… 4f1c…
    """
    done = platform.invoices.refund_sent(id, txid)
    return Answer(done, f"{done.amount} {done.currency} to {done.address} in {done.sent_txid}")


@app.command("rates")
def rates(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Show what the platform takes each coin to be worth.

    Examples:

        sandboxer rates --json
    """
    with _anyone(url, state_dir) as platform:
        found = platform.invoices.rates()
    if json:
        print_json(list(found))
        return
    rows = [
        (one.asset, one.usd or "none", ", ".join(one.sources) or one.why or "", one.off or "")
        for one in found
    ]
    out.print(columns(rows, "ASSET", "USD", "SAID BY", "NO INVOICES BECAUSE"))


def _anyone(url: str | None, state_dir: Path | None) -> Sandboxer:
    """With a key if there is one; the routes for anybody do not look at it."""
    try:
        return client(url, state_dir)
    except MissingCredentials:
        return Sandboxer(url=url, public_key=NOBODY, secret_key=NOBODY)


def _watch(platform: Sandboxer, id: str, *, is_quiet: bool) -> Invoice:
    """Until it is settled. A stream that breaks is replaced by asking, as slowly as the platform wishes."""
    seen = platform.invoices.get(id)
    with _bar(is_quiet) as bar:
        task = bar.add_task(seen.state, total=seen.confirmations_needed)
        while not seen.is_settled:
            try:
                for seen in platform.invoices.follow(id):
                    bar.update(task, completed=seen.confirmations, description=seen.state)
            except SdkError:
                time.sleep(seen.poll_after_s)
                seen = platform.invoices.get(id)
        bar.update(task, completed=seen.confirmations, description=seen.state)
    return seen


def _bar(is_quiet: bool) -> Progress:
    return Progress(
        TextColumn("{task.description:<14}"),
        BarColumn(),
        TextColumn("{task.completed:.0f} of {task.total:.0f} confirmations"),
        console=out,
        disable=is_quiet,
        transient=False,
    )


def _print_bill(made: NewInvoice) -> None:
    out.print(qr.terminal(made.payment_uri), soft_wrap=True)
    facts = [
        ("invoice", made.id),
        ("pay exactly", f"{made.amount} {made.currency}"),
        ("to", made.address),
        ("for", f"tier {made.tier}, {made.months} months" if made.tier else f"{made.sats} sats"),
        ("expires", until(made.expires_at)),
        ("confirmations", made.confirmations_needed),
        ("claim (keep it)", made.claim),
    ]
    out.print(facts_table(facts))


def _print_end(platform: Sandboxer, made: NewInvoice, seen: Invoice, is_json: bool) -> None:
    """The key, if one was bought: nobody else has the claim, and its secret is shown once."""
    if seen.public_key is None or made.claim is None:
        if is_json:
            print_json(seen)
        else:
            _print_invoice(seen)
        return
    key = platform.invoices.claim_key(seen.public_key, made.claim)
    if is_json:
        print_json({"invoice": seen, "key": key})
        return
    _print_invoice(seen)
    facts = [("public key", key.public_key), ("secret key", key.secret_key), ("account", key.account)]
    out.print(facts_table(facts))


def _print_invoice(seen: Invoice) -> None:
    facts = [
        ("invoice", seen.id),
        ("state", seen.state),
        ("asked", f"{seen.amount} {seen.currency}"),
        ("received", f"{seen.received} {seen.currency}"),
        ("confirmations", f"{seen.confirmations} of {seen.confirmations_needed}"),
        ("expires", until(seen.expires_at)),
        ("key", seen.public_key),
    ]
    out.print(facts_table(facts))
    if seen.payments:
        rows = [
            (
                one.txid,
                one.amount,
                one.confirmations,
                "yes" if one.is_in_time else "late",
                one.settled,
                one.sats,
            )
            for one in seen.payments
        ]
        out.print(columns(rows, "TRANSACTION", "AMOUNT", "DEPTH", "IN TIME", "BECAME", "SATS"))


@paying.command("qr")
def draw(
    id: Id,
    to: Annotated[Path, typer.Argument(help="File to write (SVG).", metavar="FILE")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Write the picture that a wallet scans.

    Examples:

        sandboxer invoices qr inv_0123456789abcdefghjkmnpqrs invoice.svg
    """
    with client(url, state_dir) as platform:
        picture = platform.invoices.qr_svg(id)
    to.write_bytes(picture)
    print_answer({"file": str(to), "bytes": len(picture)}, is_json=json)
