"""`gift create|show|code|balance|redeem|approve|deny|revoke|refund|list`: dollars behind four words."""

from __future__ import annotations

import time
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import After, InState, Json, Limit
from sandboxer.edges.cli.output import ago, columns, facts_table, out, until
from sandboxer.edges.cli.payments import blocks_of
from sandboxer.edges.cli.verbs import Answer, Row, as_it_is, group, noun, rows, show_answer, verb
from sandboxer.kernel.values import counted
from sandboxer.sdk.credentials import NOBODY
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.payments import GiftCards
from sandboxer.wire.gift_cards import GiftCard, NewGiftCard, NewRedemption, Redemption
from sandboxer.wire.keys import NewKey

app = typer.Typer(rich_markup_mode="rich")
giving = group("Prepaid dollars behind four words.")
groups = {"gift": giving}

Id = Annotated[str, typer.Argument(help="Id of the card (gft_…).", metavar="ID")]
Words = Annotated[str, typer.Argument(help="The four words; case, spaces and hyphens do not matter.")]
Link = Annotated[str, typer.Argument(help="The link that asks for approval, or its last part.")]
Claim = Annotated[
    str | None,
    typer.Option(help="The buyer's claim; without it your key must be the buyer's or the owner's."),
]


def _show_card(seen: GiftCard) -> Answer:
    facts = [
        ("card", seen.id),
        ("state", seen.state),
        ("worth", _dollars(seen.cents)),
        ("left", _dollars(seen.left_cents)),
        ("waits for approval", _dollars(seen.held_cents)),
        ("paid by", seen.source),
        ("invoice", seen.invoice),
    ]
    return Answer(seen, facts_table(facts))


def _show_redemption(done: Redemption, key: NewKey | None = None) -> Answer:
    facts: list[tuple[str, object]] = [
        ("redemption", done.id),
        ("state", done.state),
        ("takes", _dollars(done.cents)),
        ("left on the card", _dollars(done.left_cents)),
        (
            "gives",
            f"tier {done.tier}, {counted(done.months or 0, 'month')}"
            if done.tier
            else f"{done.sats or '…'} sats",
        ),
        ("account", done.account),
    ]
    if key is not None:
        facts += [("public key", key.public_key), ("secret key", key.secret_key)]
    elif isinstance(done, NewRedemption) and done.claim is not None:
        facts.append(("claim (keep it)", done.claim))
    return Answer(done, facts_table(facts))


@verb(giving, "create", is_open=True)
def create(
    platform: Sandboxer,
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
) -> Answer | None:
    """Buy a card. By invoice nobody needs a key; keep the claim: with it the code is shown, once.

    Examples:

        sandboxer gift create 50 --currency XMR --watch

        sandboxer gift create 7 --sats --approval-email me@example.org

        sandboxer gift create 20.00 --free --reason "prize of the week" --json
    """
    if [currency is not None, sats, free].count(True) != 1:
        raise CommandFailed("Say how it is paid: --currency COIN, --sats, or --free.")
    made = platform.gift_cards.create(
        _cents(dollars),
        pay_with="sats" if sats else "operator" if free else "invoice",
        currency=None if currency is None else currency.upper(),
        refund_address=refund_address,
        approval_email=approval_email,
        approval_webhook=approval_webhook,
        reason=reason,
        anonymous=_is_stranger(platform),
    )
    if made.bill is not None and not json:
        out.print(blocks_of(made.bill.payment_uri), soft_wrap=True)
    show_answer(_show_new(made), is_json=json)
    return _wait(platform, made) if watch and made.code is None else None


@verb(giving, "show", is_open=True)
def status(
    platform: Sandboxer,
    id: Annotated[str, typer.Argument(help="Id of a card (gft_…) or a redemption (rdm_…).", metavar="ID")],
) -> Answer:
    """Show a card, or a redemption.

    Examples:

        sandboxer gift show gft_0123…

        sandboxer gift show rdm_0123… --json
    """
    if id.startswith("rdm_"):
        return _show_redemption(platform.gift_cards.redemption(id))
    return _show_card(platform.gift_cards.get(id))


@verb(giving, "code", is_open=True)
def code(
    platform: Sandboxer,
    id: Id,
    claim: Claim = None,
    again: Annotated[bool, typer.Option("--again", help="New words; the old ones end.")] = False,
) -> Answer:
    """Show the four words of a paid card, once.

    Examples:

        sandboxer gift code gft_0123… --claim 3fZ…
    """
    shown = platform.gift_cards.code(id, claim=claim, again=again)
    return Answer(shown, shown.code)


@verb(giving, "balance", is_open=True)
def balance(platform: Sandboxer, code: Words) -> Answer:
    """Show what is left behind four words.

    Examples:

        sandboxer gift balance abacus-violin-pebble-zoom
    """
    found = platform.gift_cards.balance(code)
    facts = [
        ("card", found.id),
        ("left", _dollars(found.left_cents)),
        ("of", _dollars(found.cents)),
        ("needs approval", "yes" if found.needs_approval else "no"),
    ]
    return Answer(found, facts_table(facts))


@verb(giving, "redeem", is_open=True)
def redeem(
    platform: Sandboxer,
    code: Words,
    tier: Annotated[int | None, typer.Option(help="A tier, with --months.")] = None,
    months: Annotated[int | None, typer.Option(help="For how long.")] = None,
    dollars: Annotated[str | None, typer.Option(help="Turn so much into sats; without it, all.")] = None,
    account: Annotated[str | None, typer.Option(help="Public id of who gets it; default: you.")] = None,
    new_account: Annotated[bool, typer.Option("--new-account", help="A new account, with a key.")] = False,
) -> Answer:
    """Turn four words into a tier or sats: for you, for another account, or for a new one with a key.

    Examples:

        sandboxer gift redeem "abacus violin pebble zoom" --tier 1 --new-account

        sandboxer gift redeem abacus-violin-pebble-zoom --dollars 5.00
    """
    done = platform.gift_cards.redeem(
        code,
        tier=tier,
        months=months,
        cents=None if dollars is None else _cents(dollars),
        account=account,
        anonymous=new_account or _is_stranger(platform),
    )
    key = None
    if done.public_key is not None and done.claim is not None:
        key = platform.invoices.claim_key(done.public_key, done.claim)
    return Answer({"redemption": done, "key": key}, *_show_redemption(done, key).parts)


of_cards = partial(rows, giving, noun("gift_cards"))
of_cards(
    {"link": Link},
    _show_redemption,
    Row(
        "approve",
        GiftCards.approve,
        "Let a redemption go on, by the link that asks for it.",
        "gift approve https://…/v1/gift-cards/approvals/rdm_0123….…",
    ),
    Row(
        "deny",
        GiftCards.deny,
        "Do not let a redemption go on; the amount is on the card again.",
        "gift deny rdm_0123….…",
    ),
    is_open=True,
)
of_cards(
    {"card_id": Id},
    _show_card,
    Row(
        "revoke",
        GiftCards.revoke,
        "End a card: nothing can be redeemed any more. What is left can be refunded.",
        "gift revoke gft_0123… --claim 3fZ…",
        {"claim": (Claim, None), "reason": (Annotated[str, typer.Option(help="Why.")], "asked")},
    ),
    is_open=True,
)


@verb(giving, "refund", is_open=True)
def refund(
    platform: Sandboxer,
    id: Id,
    claim: Claim = None,
    to_account: Annotated[str | None, typer.Option(help="Public id of who gets the sats.")] = None,
    to_address: Annotated[
        str | None, typer.Option(help="Coin address, less 9 %; `buyer` for the one of the invoice.")
    ] = None,
) -> Answer:
    """Give back what is left: as sats of an account (default: yours), or to a coin address less 9 %.

    Examples:

        sandboxer gift refund gft_0123… --claim 3fZ… --to-address buyer
    """
    done = platform.gift_cards.refund(
        id,
        to="sats" if to_address is None else "address",
        claim=claim,
        account=to_account,
        address=None if to_address == "buyer" else to_address,
    )
    if done.to == "sats":
        return Answer(done, f"credited: {counted(done.sats or 0, 'sat')}")
    return Answer(done, f"{done.atomic} of the coin's smallest unit are queued to go back.")


@verb(giving, "list")
def listing(platform: Sandboxer, state: InState = None, after: After = None, limit: Limit = 50) -> Answer:
    """List cards, newest first (operator).

    Examples:

        sandboxer gift list --state active
    """
    found = platform.gift_cards.page(state=state, cursor=after, limit=limit)
    rows = [
        (one.id, one.state, _dollars(one.cents), _dollars(one.left_cents), one.source, ago(one.created_at))
        for one in found.cards
    ]
    return Answer(found, columns(rows, "ID", "STATE", "WORTH", "LEFT", "PAID BY", "CREATED"))


def _is_stranger(platform: Sandboxer) -> bool:
    return platform.credentials.public_key == NOBODY


def _cents(dollars: str) -> int:
    """Reads an amount exactly: half a cent is refused, not rounded."""
    try:
        cents = Decimal(dollars.removeprefix("$")) * 100
    except InvalidOperation:
        raise CommandFailed(f"{dollars!r} is no amount of dollars: write 50 or 50.00.") from None
    if not cents.is_finite() or cents != int(cents) or cents <= 0:
        raise CommandFailed(f"{dollars!r} is no amount of whole cents.")
    return int(cents)


def _dollars(cents: int) -> str:
    return f"${cents // 100}.{cents % 100:02}"


def _wait(platform: Sandboxer, made: NewGiftCard) -> Answer:
    seen: GiftCard = made
    while seen.state == "awaiting_payment":
        time.sleep(min(2, seen.poll_after_s))
        seen = platform.gift_cards.get(made.id)
    shown = platform.gift_cards.code(made.id, claim=made.claim)
    return Answer(shown, facts_table([("code (shown once)", shown.code)]))


def _show_new(made: NewGiftCard) -> Answer:
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
    return Answer(made, facts_table(facts))


of_cards(
    {}, as_it_is, Row("pricing", GiftCards.pricing, "Show what gift cards cost and may hold.", "gift pricing")
)
