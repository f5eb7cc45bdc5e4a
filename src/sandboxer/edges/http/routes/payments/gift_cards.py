"""Gift cards: anyone may buy, look at and redeem one; the buyer and the operator may end it."""

from __future__ import annotations

import time
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.limits import client_address, network_around
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.authentication import CALLER
from sandboxer.edges.http.failures import failures, stranger_failures, unsigned_failures
from sandboxer.edges.http.idempotency import Bind, IdempotencyKey, once_bound
from sandboxer.edges.http.purchases import is_stranger
from sandboxer.edges.http.routes.payments.invoices import invoice
from sandboxer.edges.http.state import caller, platform_of, require_owner
from sandboxer.kernel.errors import NoRate, Unauthenticated
from sandboxer.kernel.ids import new_id
from sandboxer.payments.gift_cards.codes.attempts import Origin, Work
from sandboxer.payments.gift_cards.codes.words import WORDS, word_list
from sandboxer.payments.gift_cards.desk import CardOrder, CardView, Created, Who
from sandboxer.payments.gift_cards.moves import locked
from sandboxer.payments.gift_cards.records import Approval, Source
from sandboxer.payments.gift_cards.redeeming import Ask, Redeemed
from sandboxer.payments.gift_cards.room import GiftCards
from sandboxer.payments.gift_cards.states import CardState
from sandboxer.payments.invoices.desk import View
from sandboxer.wire import gift_cards as wire
from sandboxer.wire.invoices import NewInvoice
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX

router = APIRouter(prefix="/v1/gift-cards", tags=["gift cards"])


@router.get(
    "/pricing",
    operation_id="getGiftPricing",
    response_model=wire.GiftPricing,
    responses=unsigned_failures(),
    summary="What cards there are, how they are paid and guarded",
)
async def pricing(request: Request) -> Response:
    cards = _cards(request)
    policy = cards.desk.policy
    try:
        sats = locked(await cards.desk.rates.usd("BTC")).convert(100)
    except NoRate:
        sats = None
    shown = wire.GiftPricing(
        min_cents=policy.min_cents,
        max_cents=policy.max_cents,
        currencies=sorted(coin for coin, why in cards.desk.invoices.why_off().items() if why is None),
        pays_with_sats=policy.for_sats,
        sats_per_dollar=sats,
        restocking_percent=policy.restocking_percent,
        approval_by=["webhook", "email"] if cards.desk.has_mail else ["webhook"],
        words=WORDS,
        word_list=len(word_list()),
        attempts_per_minute=policy.attempts_per_minute,
        work_bits=cards.redeeming.attempts.bits(now=time.monotonic()),
    )
    return json_response(shown)


@router.post(
    "",
    operation_id="buyGiftCard",
    status_code=201,
    response_model=wire.NewGiftCard,
    responses=failures(402, 404, 409),
    summary="A card: by invoice, from one's sats, or given by the operator",
)
async def buy(request: Request, body: wire.BuyGiftCard, idempotency_key: IdempotencyKey = None) -> Response:
    order = CardOrder(
        cents=body.cents,
        source=Source(body.pay_with),
        asked_by=_address(request),
        account=None if is_stranger(request) else caller(request).account,
        key="" if is_stranger(request) else caller(request).public_key,
        is_owner=not is_stranger(request) and caller(request).is_owner,
        currency=body.currency,
        refund_address=body.refund_address,
        approval=None
        if body.approval is None
        else Approval(email=body.approval.email, webhook=body.approval.webhook),
        reason=body.reason,
    )
    if is_stranger(request) and order.source is not Source.INVOICE:
        raise Unauthenticated(why="only an invoice can be paid by nobody in particular", reason="missing")

    desk = _cards(request).desk

    async def act(bind: Bind | None) -> Response:
        return _bought(request, await desk.create(order, also=bind))

    async def recall(card_id: str) -> Response | None:
        made = await desk.recall(card_id, caller(request).account)
        return None if made is None else _bought(request, made)

    if is_stranger(request):
        return await act(None)
    return await once_bound(request, act, recall=recall, keep_answer=False)


def _bought(request: Request, made: Created) -> Response:
    answer = json_response(_new_card(request, made), 201)
    answer.headers["location"] = f"/v1/gift-cards/{made.card.id}"
    return answer


@router.get(
    "",
    operation_id="listGiftCards",
    response_model=wire.GiftCardList,
    responses=failures(404),
    summary="Every card, newest first (owner)",
)
async def listing(
    request: Request,
    state: Annotated[wire.CardWord | None, Query()] = None,
    cursor: Annotated[wire.CardId | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    require_owner(request)
    wanted = None if state is None else CardState(state)
    found = await _cards(request).desk.page(state=wanted, after=cursor, limit=limit)
    following = found[-1].card.id if len(found) == limit else None
    return json_response(wire.GiftCardList(cards=[card(one) for one in found], next_cursor=following))


@router.post(
    "/redeem",
    operation_id="redeemGiftCard",
    status_code=201,
    response_model=wire.NewRedemption,
    responses={
        202: {"model": wire.NewRedemption, "description": "Somebody must approve it first."},
        **failures(404, 409, 428),
    },
    summary="Four words for a tier, or for sats; whole or in part",
)
async def redeem(request: Request, body: wire.Redeem) -> Response:
    ask = Ask(
        code=body.code,
        request_id=body.request_id or new_id("req"),
        tier=body.tier,
        months=body.months,
        cents=body.cents,
        account=body.account,
        caller=None if is_stranger(request) else caller(request).account,
    )
    done = await _cards(request).redeeming.redeem(ask, _work(body.work), _origin(request))
    shown = wire.NewRedemption(
        **redemption(done).model_dump(),
        request_id=ask.request_id,
        claim=None if done.claim is None else done.claim.token,
    )
    answer = json_response(shown, 202 if shown.state == "pending_approval" else 201)
    answer.headers["location"] = f"/v1/gift-cards/redemptions/{shown.id}"
    return answer


@router.post(
    "/balance",
    operation_id="getGiftBalance",
    response_model=wire.CardBalance,
    responses=stranger_failures(404, 428),
    summary="What is left behind four words",
)
async def balance(request: Request, body: wire.AskBalance) -> Response:
    found, left = await _cards(request).redeeming.balance(body.code, _work(body.work), _origin(request))
    return json_response(
        wire.CardBalance(
            id=found.id, cents=found.cents, left_cents=left, needs_approval=found.approval is not None
        )
    )


@router.get(
    "/redemptions/{redemption_id}",
    operation_id="getRedemption",
    response_model=wire.Redemption,
    responses=unsigned_failures(404, 422),
    summary="What became of a redemption; ask every 14 seconds",
)
async def show_redemption(request: Request, redemption_id: wire.RedemptionId) -> Response:
    return json_response(redemption(await _cards(request).redeeming.status(redemption_id)))


@router.get(
    "/{card_id}",
    operation_id="getGiftCard",
    response_model=wire.GiftCard,
    responses=unsigned_failures(404, 422),
    summary="How a card stands; ask every 14 seconds until it is paid",
)
async def show(request: Request, card_id: wire.CardId) -> Response:
    return json_response(card(await _cards(request).desk.view(card_id)))


@router.post(
    "/{card_id}/code",
    operation_id="showGiftCode",
    response_model=wire.ShownCode,
    responses=failures(404, 409),
    summary="The four words of a paid card, once (buyer)",
)
async def show_code(request: Request, card_id: wire.CardId, body: wire.ShowCode) -> Response:
    who = _who(request, body)
    found, code = await _cards(request).desk.reveal(card_id, who, again=body.again)
    return json_response(wire.ShownCode(id=found.id, code=code, cents=found.cents))


@router.post(
    "/{card_id}/revoke",
    operation_id="revokeGiftCard",
    response_model=wire.GiftCard,
    responses=failures(404, 409),
    summary="Nothing can be redeemed any more (buyer, owner)",
)
async def revoke(request: Request, card_id: wire.CardId, body: wire.Revoke) -> Response:
    who = _who(request, body)
    return json_response(card(await _cards(request).desk.revoke(card_id, who, reason=body.reason)))


@router.post(
    "/{card_id}/refund",
    operation_id="refundGiftCard",
    response_model=wire.RefundedCard,
    responses=failures(404, 409),
    summary="What is left goes back: to sats, or to a coin address less restocking (buyer, owner)",
)
async def refund(request: Request, card_id: wire.CardId, body: wire.RefundCard) -> Response:
    desk, who = _cards(request).desk, _who(request, body)
    if body.to == "sats":
        after, sats = await desk.refund_to_sats(card_id, who, account=body.account)
        return json_response(wire.RefundedCard(card=card(after), to="sats", sats=sats))
    after, atomic = await desk.refund_to_address(card_id, who, address=body.address)
    return json_response(wire.RefundedCard(card=card(after), to="address", atomic=str(atomic)))


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


def _new_card(request: Request, made: Created) -> wire.NewGiftCard:
    is_paid = made.code is not None
    view = CardView(card=made.card, left=made.card.cents if is_paid else 0, held=0)
    bill = None
    if made.ordered is not None:
        ordered = made.ordered
        seen = View(invoice=ordered.invoice, outputs=(), refunds=(), steps=(), uri=ordered.uri)
        claim = None if ordered.claim is None else ordered.claim.token
        bill = NewInvoice(**invoice(seen).model_dump(), claim=claim)
    return wire.NewGiftCard(
        **card(view).model_dump(),
        claim=made.claim.token,
        code=made.code,
        approval_secret=made.approval_secret,
        bill=bill,
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
    """Whom limits count."""
    peer = request.client
    forwarded = request.headers.getlist("x-forwarded-for")
    trusted = platform_of(request).trusted_proxies
    return client_address(None if peer is None else peer.host, forwarded, trusted)
