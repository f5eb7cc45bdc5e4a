"""Routes of gift cards: anyone may buy, look at and redeem one; the buyer and the operator may end it.

The page behind an approval link has two buttons. Opening it never answers, because programs open links too.
"""

from __future__ import annotations

import time
from html import escape

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from sandboxer.accounts.limits import network_around
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.authentication import CALLER, address_of
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, bind
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.purchases import is_stranger
from sandboxer.edges.http.requests import caller, platform_of
from sandboxer.edges.http.routes.payments.invoices import new_invoice
from sandboxer.kernel.errors import NoRate, Unauthenticated
from sandboxer.kernel.values import new_id
from sandboxer.payments.gift_cards.approval import PATH, dollars
from sandboxer.payments.gift_cards.codes import WORDS, Origin, Work, word_list
from sandboxer.payments.gift_cards.dependencies import GiftCards
from sandboxer.payments.gift_cards.ledger import locked
from sandboxer.payments.gift_cards.records import Approval, CardState, RedemptionState, Source
from sandboxer.payments.gift_cards.records import Redemption as RedemptionRecord
from sandboxer.payments.gift_cards.redemption import Ask, Redeemed
from sandboxer.payments.gift_cards.use_cases import CardOrder, CardView, Created, Who
from sandboxer.payments.invoices.records import Kind
from sandboxer.wire import gift_cards as wire
from sandboxer.wire.operations import payments as operations

# The page loads nothing from elsewhere, is shown in no frame, and passes its address to nobody.
HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self';"
    " frame-ancestors 'none'; base-uri 'none'",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-robots-tag": "noindex",
}


async def pricing(asked: Asked) -> wire.GiftPricing:
    cards = _cards(asked.request)
    policy = cards.use_cases.deps.policy
    try:
        sats = locked(await cards.use_cases.deps.rates.usd("BTC")).convert(100)
    except NoRate:
        sats = None
    return wire.GiftPricing(
        min_cents=policy.min_cents,
        max_cents=policy.max_cents,
        currencies=sorted(
            coin for coin, why in cards.use_cases.deps.invoices.why_off().items() if why is None
        ),
        pays_with_sats=policy.for_sats,
        sats_per_dollar=sats,
        restocking_percent=policy.restocking_percent,
        approval_by=["webhook", "email"] if cards.use_cases.deps.mail else ["webhook"],
        words=WORDS,
        word_list=len(word_list()),
        attempts_per_minute=policy.attempts_per_minute,
        work_bits=cards.redeeming.attempts.bits(now=time.monotonic()),
    )


async def buy(asked: AskedBody[wire.BuyGiftCard]) -> Response:
    order = CardOrder(
        cents=asked.body.cents,
        source=Source(asked.body.pay_with),
        asked_by=_address(asked.request),
        account=None if is_stranger(asked.request) else asked.caller.account,
        key="" if is_stranger(asked.request) else asked.caller.public_key,
        is_owner=not is_stranger(asked.request) and asked.caller.is_owner,
        currency=asked.body.currency,
        refund_address=asked.body.refund_address,
        approval=None
        if asked.body.approval is None
        else Approval(email=asked.body.approval.email, webhook=asked.body.approval.webhook),
        reason=asked.body.reason,
    )
    if is_stranger(asked.request) and order.source is not Source.INVOICE:
        raise Unauthenticated(why="only an invoice can be paid by nobody in particular", reason="missing")

    use_cases = _cards(asked.request).use_cases

    async def act(bind: Bind | None) -> Response:
        return _bought(await use_cases.create(order, also=bind))

    async def recall(card_id: str) -> Response | None:
        made = await use_cases.recall(card_id, asked.caller.account)
        return None if made is None else _bought(made)

    if is_stranger(asked.request):
        return await act(None)
    return await once_bound(asked.request, act, recall=recall, keep_answer=False)


def _bought(made: Created) -> Response:
    return json_response(_new_card(made), 201, location=f"/v1/gift-cards/{made.card.id}")


async def listing(asked: AskedQuery[operations.ListGiftCardsQuery]) -> wire.GiftCardList:
    wanted = None if asked.query.state is None else CardState(asked.query.state)
    found = await _cards(asked.request).use_cases.page(
        state=wanted, after=asked.query.cursor, limit=asked.query.limit
    )
    following = found[-1].card.id if len(found) == asked.query.limit else None
    return wire.GiftCardList(cards=[card(one) for one in found], next_cursor=following)


async def redeem(asked: AskedBody[wire.Redeem]) -> Response:
    ask = Ask(
        code=asked.body.code,
        request_id=asked.body.request_id or new_id("req"),
        tier=asked.body.tier,
        months=asked.body.months,
        cents=asked.body.cents,
        account=asked.body.account,
        caller=None if is_stranger(asked.request) else asked.caller.account,
    )
    done = await _cards(asked.request).redeeming.redeem(ask, _work(asked.body.work), _origin(asked.request))
    shown = wire.NewRedemption(
        **redemption(done).model_dump(),
        request_id=ask.request_id,
        claim=None if done.claim is None else done.claim.token,
    )
    status = 202 if shown.state == "pending_approval" else 201
    return json_response(shown, status, location=f"/v1/gift-cards/redemptions/{shown.id}")


async def balance(asked: AskedBody[wire.AskBalance]) -> wire.CardBalance:
    found, left = await _cards(asked.request).redeeming.balance(
        asked.body.code, _work(asked.body.work), _origin(asked.request)
    )
    return wire.CardBalance(
        id=found.id, cents=found.cents, left_cents=left, needs_approval=found.approval is not None
    )


async def show_redemption(asked: Asked[operations.RedemptionPath]) -> wire.Redemption:
    return redemption(await _cards(asked.request).redeeming.status(asked.path.redemption_id))


async def show(asked: Asked[operations.CardPath]) -> wire.GiftCard:
    return card(await _cards(asked.request).use_cases.view(asked.path.card_id))


async def show_code(asked: AskedPathBody[operations.CardPath, wire.ShowCode]) -> wire.ShownCode:
    who = _who(asked.request, asked.body)
    found, code = await _cards(asked.request).use_cases.reveal(
        asked.path.card_id, who, again=asked.body.again
    )
    return wire.ShownCode(id=found.id, code=code, cents=found.cents)


async def revoke(asked: AskedPathBody[operations.CardPath, wire.Revoke]) -> wire.GiftCard:
    who = _who(asked.request, asked.body)
    return card(
        await _cards(asked.request).use_cases.revoke(asked.path.card_id, who, reason=asked.body.reason)
    )


async def refund(asked: AskedPathBody[operations.CardPath, wire.RefundCard]) -> wire.RefundedCard:
    use_cases, who = _cards(asked.request).use_cases, _who(asked.request, asked.body)
    if asked.body.to == "sats":
        after, sats = await use_cases.refund_to_sats(asked.path.card_id, who, account=asked.body.account)
        return wire.RefundedCard(card=card(after), to="sats", sats=sats)
    after, atomic = await use_cases.refund_to_address(asked.path.card_id, who, address=asked.body.address)
    return wire.RefundedCard(card=card(after), to="address", atomic=str(atomic))


def card(view: CardView) -> wire.GiftCard:
    one = view.card
    return wire.GiftCard(
        id=one.id,
        state=one.state.value,
        cents=one.cents,
        left_cents=view.left,
        held_cents=view.held,
        source=one.source.value,
        needs_approval=one.approval is not None,
        is_shown=one.shown_at is not None,
        invoice=one.invoice,
        created_at=one.created_at,
        paid_at=one.paid_at,
    )


def redemption(done: Redeemed) -> wire.Redemption:
    one = done.redemption
    return wire.Redemption(
        id=one.id,
        state=one.state.value,
        kind=one.kind.value,
        tier=one.tier,
        months=one.months,
        cents=one.cents,
        sats=one.sats,
        btc_usd_rate=one.rate,
        left_cents=done.left,
        account=done.account,
        public_key=one.public_key,
        entitled_until=one.entitled_until,
        reason=one.reason,
        created_at=one.created_at,
        expires_at=one.expires_at,
    )


def _new_card(made: Created) -> wire.NewGiftCard:
    is_paid = made.code is not None
    view = CardView(card=made.card, left=made.card.cents if is_paid else 0, held=0)
    return wire.NewGiftCard(
        **card(view).model_dump(),
        claim=made.claim.token,
        code=made.code,
        approval_secret=made.approval_secret,
        bill=None if made.ordered is None else new_invoice(made.ordered),
    )


def _cards(request: Request) -> GiftCards:
    return platform_of(request).payments.gift_cards


def _work(given: wire.Work | None) -> Work | None:
    return None if given is None else Work(given.challenge, given.solution)


def _who(request: Request, body: wire.Prove) -> Who:
    if is_stranger(request):
        if body.claim is None:
            raise Unauthenticated(why="send the card's claim, or sign", reason="missing")
        return Who(claim=body.claim)
    known = caller(request)
    return Who(claim=body.claim, account=known.account, is_owner=known.is_owner)


def _origin(request: Request) -> Origin:
    address = _address(request)
    known = CALLER in request.scope and not caller(request).is_owner
    return Origin(address, network_around(address), caller(request).account if known else None)


def _address(request: Request) -> str:
    """Returns the address that limits count."""
    return address_of(request.scope, platform_of(request))


async def show_approval(asked: Asked[operations.TokenPath]) -> Response:
    one, _ = await _cards(asked.request).redeeming.answering(asked.path.token)
    return HTMLResponse(_page(one, asked.path.token), headers=HEADERS)


async def approve(asked: Asked[operations.TokenPath]) -> Response:
    redeeming = _cards(asked.request).redeeming
    return _answer(asked.request, await redeeming.approve(asked.path.token), asked.path.token)


async def deny(asked: Asked[operations.TokenPath]) -> Response:
    redeeming = _cards(asked.request).redeeming
    return _answer(asked.request, await redeeming.deny(asked.path.token), asked.path.token)


def _answer(request: Request, done: Redeemed, token: str) -> Response:
    if "text/html" in request.headers.get("accept", ""):
        return HTMLResponse(_page(done.redemption, token), headers=HEADERS)
    return json_response(redemption(done))


def _page(one: RedemptionRecord, token: str) -> str:
    buys = f"tier {one.tier} for {one.months} months" if one.kind is Kind.TIER else "sats"
    path = escape(f"{PATH}/{token}", quote=True)
    if one.state is RedemptionState.PENDING_APPROVAL:
        act = (
            f'<form method="post" action="{path}/approve"><button>Approve</button></form>'
            f'<form method="post" action="{path}/deny"><button>Deny</button></form>'
        )
    else:
        act = f"<p><b>{escape(one.state.value)}</b>: nothing more to answer.</p>"
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name="viewport" content="width=device-width"><title>Gift card</title>'
        "<style>body{font:1.1rem system-ui;max-width:32rem;margin:3rem auto;padding:0 1rem}"
        "form{display:inline}button{font:inherit;padding:.6rem 1.4rem;margin:1rem 1rem 0 0}</style>"
        f"<h1>{escape(dollars(one.cents))} of a gift card</h1>"
        f"<p>Somebody wants to redeem it for {escape(buys)}.</p>{act}</html>"
    )


BINDINGS = (
    bind(operations.GET_GIFT_PRICING, pricing),
    bind(operations.BUY_GIFT_CARD, buy),
    bind(operations.LIST_GIFT_CARDS, listing),
    bind(operations.REDEEM_GIFT_CARD, redeem),
    bind(operations.GET_GIFT_BALANCE, balance),
    bind(operations.GET_REDEMPTION, show_redemption),
    bind(operations.GET_GIFT_CARD, show),
    bind(operations.SHOW_GIFT_CODE, show_code),
    bind(operations.REVOKE_GIFT_CARD, revoke),
    bind(operations.REFUND_GIFT_CARD, refund),
    bind(operations.SHOW_APPROVAL, show_approval),
    bind(operations.APPROVE_REDEMPTION, approve),
    bind(operations.DENY_REDEMPTION, deny),
)
