"""`invoice create|show|list|look`, `refund list|sent` and `rate list`: paying in coins, and taking them.

`pay list|show|goods`: what was paid by x402.
"""

from __future__ import annotations

import io
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table

from sandboxer.edges.cli.options import After, InState, Json, Limit
from sandboxer.edges.cli.output import ago, columns, facts_table, out, until
from sandboxer.edges.cli.pay import app as by_wallet
from sandboxer.edges.cli.verbs import Answer, group, show_answer, verb
from sandboxer.kernel.program import late
from sandboxer.kernel.values import counted
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.invoices import Invoice, NewInvoice
from sandboxer.wire.payments import Payment

if TYPE_CHECKING:
    import segno
else:
    segno = late("segno")

by_invoice = group("Pay in coins, by invoice.")
returning = group("What has to go back (operator).")
rating = group("What the platform takes each coin to be worth.")
groups = {"invoice": by_invoice, "refund": returning, "pay": by_wallet, "rate": rating}

Id = Annotated[str, typer.Argument(help="Id of the invoice (inv_…).", metavar="ID")]


def blocks_of(uri: str) -> str:
    """Returns a payment URI as a picture of block characters, for a terminal."""
    picture = io.StringIO()
    segno.make(uri, micro=False, error="m").terminal(picture, compact=True)
    return picture.getvalue()


@verb(by_invoice, "create", is_open=True)
def create(
    platform: Sandboxer,
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
) -> Answer | None:
    """Ask for an address and an exact amount. Needs no key: whoever pays gets one.

    Examples:

        sandboxer invoice create XMR --tier 1 --months 3 --watch

        sandboxer invoice create LTC --sats 100000 --account pub_0123… --json
    """
    made = platform.invoices.create(
        currency.upper(), tier=tier, months=months, sats=sats, account=account, refund_address=refund_address
    )
    if not json:
        out.print(blocks_of(made.payment_uri), soft_wrap=True)
    show_answer(_bill(made), is_json=json)
    return _paid(platform, made, _watch(platform, made.id, is_quiet=json)) if watch else None


@verb(by_invoice, "show", is_open=True)
def show_invoice(
    platform: Sandboxer,
    id: Id,
    watch: Annotated[bool, typer.Option("--watch", help="Stay until it is settled.")] = False,
    json: Json = False,
) -> Answer:
    """Show what has arrived for an invoice and what became of it.

    Examples:

        sandboxer invoice show inv_0123… --watch
    """
    return _show_invoice(_watch(platform, id, is_quiet=json) if watch else platform.invoices.get(id))


@verb(by_invoice, "list")
def listing(platform: Sandboxer, state: InState = None, after: After = None, limit: Limit = 50) -> Answer:
    """List invoices, newest first (operator).

    Examples:

        sandboxer invoice list --state confirming
    """
    found = platform.invoices.page(state=state, cursor=after, limit=limit)
    rows = [
        (one.id, one.state, one.kind, f"{one.amount} {one.currency}", one.sats, ago(one.created_at))
        for one in found.invoices
    ]
    return Answer(found, columns(rows, "ID", "STATE", "FOR", "AMOUNT", "SATS", "CREATED"))


@verb(by_invoice, "look")
def look(platform: Sandboxer, id: Id) -> Answer:
    """Look at an invoice's address now, also if it ended long ago (operator).

    Examples:

        sandboxer invoice look inv_0123…
    """
    return _show_invoice(platform.invoices.look(id))


@verb(returning, "list")
def refunds(
    platform: Sandboxer,
    state: Annotated[
        Literal["queued", "sending", "sent", "confirmed", "withdrawn"] | None,
        typer.Option(help="Only those in this state."),
    ] = None,
    after: After = None,
    limit: Limit = 50,
) -> Answer:
    """List refunds, oldest first. Each spends the very output it returns.

    Examples:

        sandboxer refund list --state queued --json
    """
    found = platform.invoices.refunds(state=state, cursor=after, limit=limit)
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

        sandboxer refund sent rfd_0123… 4f1c…
    """
    done = platform.invoices.refund_sent(id, txid)
    return Answer(done, f"{done.amount} {done.currency} to {done.address} in {done.sent_txid}")


@verb(rating, "list", is_open=True)
def list_rates(platform: Sandboxer) -> Answer:
    """List what each coin is worth, and who says so.

    Examples:

        sandboxer rate list --json
    """
    found = platform.invoices.rates()
    rows = [
        (one.asset, one.usd or "none", ", ".join(one.sources) or one.why or "", one.off or "")
        for one in found
    ]
    return Answer(list(found), columns(rows, "ASSET", "USD", "SAID BY", "NO INVOICES BECAUSE"))


def _watch(platform: Sandboxer, id: str, *, is_quiet: bool) -> Invoice:
    """Waits until it is settled. Where the stream breaks it asks, as slowly as the platform wishes."""
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


def _bill(made: NewInvoice) -> Answer:
    facts = [
        ("invoice", made.id),
        ("pay exactly", f"{made.amount} {made.currency}"),
        ("to", made.address),
        (
            "for",
            f"tier {made.tier}, {counted(made.months or 0, 'month')}"
            if made.tier
            else counted(made.sats, "sat"),
        ),
        ("expires", until(made.expires_at)),
        ("confirmations", made.confirmations_needed),
        ("claim (keep it)", made.claim),
    ]
    return Answer(made, facts_table(facts))


def _paid(platform: Sandboxer, made: NewInvoice, seen: Invoice) -> Answer:
    """Shows the key too, if one was bought: nobody else has the claim, and its secret is shown once."""
    shown = _show_invoice(seen)
    if seen.public_key is None or made.claim is None:
        return shown
    key = platform.invoices.claim_key(seen.public_key, made.claim)
    facts = [("public key", key.public_key), ("secret key", key.secret_key), ("account", key.account)]
    return Answer({"invoice": seen, "key": key}, *shown.parts, facts_table(facts))


def _show_invoice(seen: Invoice) -> Answer:
    facts = [
        ("invoice", seen.id),
        ("state", seen.state),
        ("asked", f"{seen.amount} {seen.currency}"),
        ("received", f"{seen.received} {seen.currency}"),
        ("confirmations", f"{seen.confirmations} of {seen.confirmations_needed}"),
        ("expires", until(seen.expires_at)),
        ("key", seen.public_key),
    ]
    if not seen.payments:
        return Answer(seen, facts_table(facts))
    rows = [
        (one.txid, one.amount, one.confirmations, "yes" if one.is_in_time else "late", one.settled, one.sats)
        for one in seen.payments
    ]
    paid = columns(rows, "TRANSACTION", "AMOUNT", "DEPTH", "IN TIME", "BECAME", "SATS")
    return Answer(seen, facts_table(facts), paid)


@verb(by_invoice, "qr")
def draw(
    platform: Sandboxer,
    id: Id,
    to: Annotated[Path, typer.Argument(help="File to write (SVG).", metavar="FILE")],
) -> object:
    """Write the picture that a wallet scans.

    Examples:

        sandboxer invoice qr inv_0123456789abcdefghjkmnpqrs invoice.svg
    """
    picture = platform.invoices.qr_svg(id)
    to.write_bytes(picture)
    return {"file": str(to), "bytes": len(picture)}


@verb(by_wallet, "list")
def list_payments(platform: Sandboxer) -> Answer:
    """Payments for this account, newest first.

    Examples:

        sandboxer pay list --json
    """
    found = list(platform.payments.list())
    rows = [(one.id, one.state, one.purpose, one.sats, one.network, ago(one.created_at)) for one in found]
    return Answer(found, columns(rows, "ID", "STATE", "FOR", "SATS", "NETWORK", "MADE"))


@verb(by_wallet, "show")
def show(
    platform: Sandboxer, id: Annotated[str, typer.Argument(help="Id of the payment (pay_…).", metavar="ID")]
) -> object:
    """What became of a payment.

    Examples:

        sandboxer pay show pay_0123…
    """
    payment = platform.payments.get(id)
    return Answer(payment, _facts(payment))


@verb(by_wallet, "goods")
def goods(platform: Sandboxer) -> Answer:
    """What can be paid for in the request itself.

    Examples:

        sandboxer pay goods
    """
    found = platform.payments.goods()
    networks = [sorted({str(offer["network"]) for offer in good.accepts}) for good in found]
    rows = [
        (good.operation, good.resource, ", ".join(names)) for good, names in zip(found, networks, strict=True)
    ]
    return Answer(list(found), columns(rows, "OPERATION", "RESOURCE", "NETWORKS"))


def _facts(payment: Payment) -> Table:
    facts = [
        ("id", payment.id),
        ("state", f"{payment.state} ({payment.reason})"),
        ("for", payment.purpose),
        ("sats", str(payment.sats)),
        ("paid", f"{payment.amount} of {payment.asset} on {payment.network}"),
        ("by", payment.payer),
        ("transaction", payment.transaction or "–"),
    ]
    return facts_table(facts)
