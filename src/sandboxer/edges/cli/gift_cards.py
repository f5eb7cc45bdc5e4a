"""`gift create|status|code|balance|redeem|approve|deny|revoke|refund|list`: dollars behind four words."""

from __future__ import annotations

import time
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges import qr
from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, facts_table, out, print_json, until
from sandboxer.edges.cli.verbs import Answer, verb
from sandboxer.sdk.credentials import NOBODY
from sandboxer.sdk.errors import MissingCredentials
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.gift_cards import GiftCard, NewGiftCard, NewRedemption, Redemption
from sandboxer.wire.keys import NewKey

app = typer.Typer(rich_markup_mode="rich")
giving = typer.Typer(help="Prepaid dollars behind four words.", no_args_is_help=True, rich_markup_mode="rich")
groups = {"gift": giving}

Id = Annotated[str, typer.Argument(help="Id of the card (gft_…).", metavar="ID")]
Words = Annotated[str, typer.Argument(help="The four words; case, spaces and hyphens do not matter.")]
Link = Annotated[str, typer.Argument(help="The link that asks for approval, or its last part.")]
Claim = Annotated[
    str | None,
    typer.Option(help="The buyer's claim; without it your key must be the buyer's or the owner's."),
]


@giving.command("create")
def create(
    dollars: Annotated[str, typer.Argument(help="What it is worth, as 50 or 50.00.")],
    currency: Annotated[str | None, typer.Option(help="Pay by invoice: BTC, LTC, DOGE or XMR.")] = None,
    sats: Annotated[bool, typer.Option("--sats", help="Pay from your account's sats.")] = False,
    free: Annotated[bool, typer.Option("--free", help="Give it away (operator), with --reason.")] = False,
    reason: Annotated[str | None, typer.Option(help="Why it is given away.")] = None,
    refund_address: Annotated[
        str | None, typer.Option(help="Where a refund of the rest goes, less 9 %.")
    ] = None,
    approval_email: Annotated[str | None, typer.Option(help="Ask this address before redeeming.")] = None,
    approval_webhook: Annotated[str | None, typer.Option(help="Ask this URL before redeeming.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Wait for the payment and show the code.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Buy a card. By invoice nobody needs a key; keep the claim: with it the code is shown, once.

    Examples:

        sandboxer gift create 50 --currency XMR --watch

        sandboxer gift create 7 --sats --approval-email me@example.org

        sandboxer gift create 20.00 --free --reason "prize of the week" --json
    """
    if [currency is not None, sats, free].count(True) != 1:
        raise CommandFailed("Say how it is paid: --currency COIN, --sats, or --free.")
    platform, is_known = _anyone(url, state_dir)
    with platform:
        made = platform.gift_cards.create(
            _cents(dollars),
            pay_with="sats" if sats else "operator" if free else "invoice",
            currency=None if currency is None else currency.upper(),
            refund_address=refund_address,
            approval_email=approval_email,
            approval_webhook=approval_webhook,
            reason=reason,
            anonymous=not is_known,
        )
        if json:
            print_json(made)
        else:
            _print_new(made)
        if watch and made.code is None:
            _wait(platform, made, json)


@giving.command("status")
def status(
    id: Annotated[str, typer.Argument(help="Id of a card (gft_…) or a redemption (rdm_…).", metavar="ID")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Show how a card, or a redemption, stands.

    Examples:

        sandboxer gift status gft_0123…

        sandboxer gift status rdm_0123… --json
    """
    platform, _ = _anyone(url, state_dir)
    with platform:
        seen: GiftCard | Redemption = (
            platform.gift_cards.redemption(id) if id.startswith("rdm_") else platform.gift_cards.get(id)
        )
    if json:
        print_json(seen)
    elif isinstance(seen, Redemption):
        _print_redemption(seen)
    else:
        _print_card(seen)


@giving.command("code")
def code(
    id: Id,
    claim: Claim = None,
    again: Annotated[bool, typer.Option("--again", help="New words; the old ones end.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Show the four words of a paid card, once.

    Examples:

        sandboxer gift code gft_0123… --claim 3fZ…
    """
    platform, _ = _anyone(url, state_dir)
    with platform:
        shown = platform.gift_cards.code(id, claim=claim, again=again)
    if json:
        print_json(shown)
    else:
        out.print(shown.code)


@giving.command("balance")
def balance(code: Words, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Show what is left behind four words.

    Examples:

        sandboxer gift balance abacus-violin-pebble-zoom
    """
    platform, _ = _anyone(url, state_dir)
    with platform:
        found = platform.gift_cards.balance(code)
    if json:
        print_json(found)
        return
    facts = [
        ("card", found.id),
        ("left", _dollars(found.left_cents)),
        ("of", _dollars(found.cents)),
        ("needs approval", "yes" if found.needs_approval else "no"),
    ]
    out.print(facts_table(facts))


@giving.command("redeem")
def redeem(
    code: Words,
    tier: Annotated[int | None, typer.Option(help="A tier, with --months.")] = None,
    months: Annotated[int | None, typer.Option(help="For how long.")] = None,
    dollars: Annotated[str | None, typer.Option(help="Turn so much into sats; without it, all.")] = None,
    account: Annotated[str | None, typer.Option(help="Public id of who gets it; default: you.")] = None,
    new_account: Annotated[bool, typer.Option("--new-account", help="A new account, with a key.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Turn four words into a tier or sats: for you, for another account, or for a new one with a key.

    Examples:

        sandboxer gift redeem "abacus violin pebble zoom" --tier 1 --months 3 --new-account

        sandboxer gift redeem abacus-violin-pebble-zoom --dollars 5.00
    """
    platform, is_known = _anyone(url, state_dir)
    with platform:
        done = platform.gift_cards.redeem(
            code,
            tier=tier,
            months=months,
            cents=None if dollars is None else _cents(dollars),
            account=account,
            anonymous=new_account or not is_known,
        )
        key = None
        if done.public_key is not None and done.claim is not None:
            key = platform.invoices.claim_key(done.public_key, done.claim)
    if json:
        print_json({"redemption": done, "key": key})
    else:
        _print_redemption(done, key)


@giving.command("approve")
def approve(link: Link, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Let a redemption go on, by the link that asks for it.

    Examples:

        sandboxer gift approve https://…/v1/gift-cards/approvals/rdm_0123….…
    """
    platform, _ = _anyone(url, state_dir)
    with platform:
        done = platform.gift_cards.approve(link)
    if json:
        print_json(done)
    else:
        _print_redemption(done)


@giving.command("deny")
def deny(link: Link, json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Do not let a redemption go on; the amount is on the card again.

    Examples:

        sandboxer gift deny rdm_0123….…
    """
    platform, _ = _anyone(url, state_dir)
    with platform:
        done = platform.gift_cards.deny(link)
    if json:
        print_json(done)
    else:
        _print_redemption(done)


@giving.command("revoke")
def revoke(
    id: Id,
    claim: Claim = None,
    reason: Annotated[str, typer.Option(help="Why.")] = "asked",
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """End a card: nothing can be redeemed any more. What is left can be refunded.

    Examples:

        sandboxer gift revoke gft_0123… --claim 3fZ…
    """
    platform, _ = _anyone(url, state_dir)
    with platform:
        ended = platform.gift_cards.revoke(id, claim=claim, reason=reason)
    if json:
        print_json(ended)
    else:
        _print_card(ended)


@giving.command("refund")
def refund(
    id: Id,
    claim: Claim = None,
    to_account: Annotated[str | None, typer.Option(help="Public id of who gets the sats.")] = None,
    to_address: Annotated[
        str | None, typer.Option(help="Coin address, less 9 %; `buyer` for the one of the invoice.")
    ] = None,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Give back what is left: as sats of an account (default: yours), or to a coin address less 9 %.

    Examples:

        sandboxer gift refund gft_0123… --claim 3fZ… --to-address buyer
    """
    platform, _ = _anyone(url, state_dir)
    with platform:
        done = platform.gift_cards.refund(
            id,
            to="sats" if to_address is None else "address",
            claim=claim,
            account=to_account,
            address=None if to_address == "buyer" else to_address,
        )
    if json:
        print_json(done)
    elif done.to == "sats":
        out.print(f"{done.sats} sats were credited.")
    else:
        out.print(f"{done.atomic} of the coin's smallest unit are queued to go back.")


@verb(giving, "list")
def listing(
    platform: Sandboxer,
    state: Annotated[str | None, typer.Option(help="Only those in this state.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=500)] = 50,
) -> Answer:
    """List cards, newest first (operator).

    Examples:

        sandboxer gift list --state active
    """
    found = platform.gift_cards.page(state=state, limit=limit)
    rows = [
        (one.id, one.state, _dollars(one.cents), _dollars(one.left_cents), one.source, ago(one.created_at))
        for one in found.cards
    ]
    return Answer(found, columns(rows, "ID", "STATE", "WORTH", "LEFT", "PAID BY", "CREATED"))


def _anyone(url: str | None, state_dir: Path | None) -> tuple[Sandboxer, bool]:
    """The client, and whether it has a key to sign with."""
    try:
        return client(url, state_dir), True
    except MissingCredentials:
        return Sandboxer(url=url, public_key=NOBODY, secret_key=NOBODY), False


def _cents(dollars: str) -> int:
    """Exactly: half a cent is refused, not rounded."""
    try:
        cents = Decimal(dollars.removeprefix("$")) * 100
    except InvalidOperation:
        raise CommandFailed(f"{dollars!r} is no amount of dollars: write 50 or 50.00.") from None
    if not cents.is_finite() or cents != int(cents) or cents <= 0:
        raise CommandFailed(f"{dollars!r} is no amount of whole cents.")
    return int(cents)


def _dollars(cents: int) -> str:
    return f"${cents // 100}.{cents % 100:02}"


def _wait(platform: Sandboxer, made: NewGiftCard, is_json: bool) -> None:
    seen: GiftCard = made
    while seen.state == "awaiting_payment":
        time.sleep(min(2, seen.poll_after_s))
        seen = platform.gift_cards.get(made.id)
    shown = platform.gift_cards.code(made.id, claim=made.claim)
    if is_json:
        print_json(shown)
    else:
        out.print(facts_table([("code (shown once)", shown.code)]))


def _print_new(made: NewGiftCard) -> None:
    if made.bill is not None:
        out.print(qr.terminal(made.bill.payment_uri), soft_wrap=True)
    bill = made.bill
    facts = [
        ("card", made.id),
        ("worth", _dollars(made.cents)),
        ("pay exactly", None if bill is None else f"{bill.amount} {bill.currency}"),
        ("to", None if bill is None else bill.address),
        ("expires", None if bill is None else until(bill.expires_at)),
        ("claim (keep it)", made.claim),
        ("code (shown once)", made.code),
        ("approval secret", made.approval_secret),
    ]
    out.print(facts_table([(name, value) for name, value in facts if value is not None]))


def _print_card(seen: GiftCard) -> None:
    facts = [
        ("card", seen.id),
        ("state", seen.state),
        ("worth", _dollars(seen.cents)),
        ("left", _dollars(seen.left_cents)),
        ("waits for approval", _dollars(seen.held_cents)),
        ("paid by", seen.source),
        ("invoice", seen.invoice),
    ]
    out.print(facts_table(facts))


def _print_redemption(done: Redemption, key: NewKey | None = None) -> None:
    facts: list[tuple[str, object]] = [
        ("redemption", done.id),
        ("state", done.state),
        ("takes", _dollars(done.cents)),
        ("left on the card", _dollars(done.left_cents)),
        ("gives", f"tier {done.tier}, {done.months} months" if done.tier else f"{done.sats or '…'} sats"),
        ("account", done.account),
    ]
    if key is not None:
        facts += [("public key", key.public_key), ("secret key", key.secret_key)]
    elif isinstance(done, NewRedemption) and done.claim is not None:
        facts.append(("claim (keep it)", done.claim))
    out.print(facts_table(facts))


@verb(giving, "pricing")
def pricing(platform: Sandboxer) -> object:
    """Show what gift cards cost and may hold.

    Examples:

        sandboxer gift pricing
    """
    return platform.gift_cards.pricing()
