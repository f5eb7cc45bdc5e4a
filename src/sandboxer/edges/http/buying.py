"""Sandboxes and time for them, paid in the request: provision, then settle; on failure neither stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.scopes import Scope
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.authentication import CALLER
from sandboxer.edges.http.confirming import pass_gate
from sandboxer.edges.http.idempotency import Bind
from sandboxer.edges.http.key_scopes import demand_scope
from sandboxer.edges.http.paying import price_of_create, price_of_extend
from sandboxer.edges.http.purchases import (
    asking,
    is_stranger,
    known_account,
    new_key,
    purchase,
    request_hash,
    settled_headers,
    shown,
    taken,
    x402_of,
)
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import SandboxerError, Unauthenticated
from sandboxer.payments.records import Payment, Purpose
from sandboxer.payments.x402.checkout import is_delivered, refusal_of
from sandboxer.payments.x402.presenting import Presented, payer_wallet
from sandboxer.payments.x402.refusals import Wanted
from sandboxer.sandboxes import records
from sandboxer.sandboxes.book import Also
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.wire.keys import NewKey
from sandboxer.wire.payments import PaidSandbox

_GONE = frozenset({State.FAILED, State.EXPIRED, State.DESTROYING, State.DESTROYED})


async def buy_sandbox(request: Request, wanted: CreateRequest, presented: Presented) -> Response:
    """Always waits until it is ready: only what was made is paid for."""
    was_stranger = is_stranger(request)
    account = known_account(request)
    price = price_of_create(platform_of(request), wanted, account)
    order = Wanted(
        purpose=Purpose.CREATE,
        least_sats=1,
        account=account,
        request_hash=await request_hash(request),
        details={},
    )

    async def act(bind: Bind | None) -> Response:
        minimum = max(x402_of(request).settings.minimum_sats, price.payable.least_sats or 0)
        async with asking(request, price.payable, minimum), taken(request, presented, order) as hand:
            if hand.is_new:
                made, payment = await _make(request, wanted, hand.payment, bind)
            else:
                payment = hand.payment
                made = await _made_before(request, wanted, payment, bind)
            key = await new_key(request, payment, is_payer=was_stranger and hand.is_new)
            return _answer(made, payment, key)

    async def recall(sandbox_id: str) -> Response | None:
        made = await platform_of(request).sandboxes.room.book.find(sandbox_id)
        if made is None or made.state in _GONE or (account is not None and made.account != account):
            return None
        return json_response(answers.sandbox(made), 201)

    return await purchase(request, presented, act, recall=recall)


async def named_payer(request: Request, presented: Presented) -> Caller:
    """Who is calling, or else whom the payment names: so far only for what must be asked before it is taken.

    Raises Unauthenticated for a wallet without an account.
    """
    if not is_stranger(request):
        return caller(request)
    async with proven(request, presented):
        account = await _account_of_wallet(request, presented)
    wallet = payer_wallet(presented)
    request.scope[CALLER] = Caller(public_key="" if wallet is None else wallet.caip10, account=account)
    return caller(request)


@asynccontextmanager
async def proven(request: Request, presented: Presented) -> AsyncIterator[None]:
    """What refuses a stranger in here is told only to who could pay: the payment is verified first.

    Else whoever names somebody's wallet would learn by the answer which sandboxes are that wallet's.
    """
    try:
        yield
    except SandboxerError:
        if is_stranger(request):
            await _prove(request, presented)
        raise


async def _prove(request: Request, presented: Presented) -> None:
    x402 = x402_of(request)
    sandbox_id = request.path_params["sandbox_id"]
    payable = price_of_extend(sandbox_id, None).payable
    async with asking(request, payable, x402.settings.minimum_sats):
        await x402.checkout.prove(presented, await _more_time(request, sandbox_id, None))


async def _more_time(request: Request, sandbox_id: str, account: str | None) -> Wanted:
    return Wanted(
        purpose=Purpose.EXTEND,
        least_sats=1,
        account=account,
        request_hash=await request_hash(request),
        details={"sandbox_id": sandbox_id},
    )


async def extend(request: Request, sandbox_id: str, presented: Presented) -> Payment:
    """Pay for more time; the time itself is the caller's business, and so is whether it may be had.

    `named_payer` comes first. Raises what refuses the payment.
    """
    account = caller(request).account
    # A wallet may be linked to a delegated key: paying gives it no scope that the key has not.
    await demand_scope(request, Scope.SANDBOXES_MANAGE)
    order = await _more_time(request, sandbox_id, account)
    x402 = x402_of(request)
    payable = price_of_extend(sandbox_id, account).payable

    async def pay() -> Payment:
        minimum = x402.settings.minimum_sats
        async with asking(request, payable, minimum), taken(request, presented, order) as hand:
            payment = await x402.checkout.settle(hand.payment) if hand.is_new else hand.payment
            if not is_delivered(payment):
                raise refusal_of(payment)
            return payment

    return await x402.errands.finish(pay(), name=f"extend {sandbox_id}")


async def _make(
    request: Request, wanted: CreateRequest, payment: Payment, bind: Bind | None
) -> tuple[records.Sandbox, Payment]:
    platform, checkout, who = platform_of(request), x402_of(request).checkout, caller(request)
    try:
        await demand_scope(request, Scope.SANDBOXES_CREATE)
        await pass_gate(request, wanted.profile)
        async with platform.slots.taken(await platform.authorities.of(who)):
            made = await platform.sandboxes.create(
                wanted,
                who,
                also=_both(bind, _funding(request, payment, platform.clock.now())),
                is_funded=True,
            )
    except BaseException:
        await checkout.withdraw(payment.id, "nothing came of what it was to pay for")
        raise
    settled = await checkout.settle(payment)
    if not is_delivered(settled):
        await platform.sandboxes.destroy(made.id, who, despite_lock=True)
        raise refusal_of(settled)
    return made, settled


async def _made_before(
    request: Request, wanted: CreateRequest, payment: Payment, bind: Bind | None
) -> records.Sandbox:
    """The same payment again: what it bought, or else what its credit buys now."""
    if not is_delivered(payment):
        raise refusal_of(payment)
    platform, who = platform_of(request), caller(request)
    sandbox_id = payment.details.get("sandbox_id")
    if sandbox_id is not None:
        return await platform.sandboxes.get(str(sandbox_id), who)
    await demand_scope(request, Scope.SANDBOXES_CREATE)
    await pass_gate(request, wanted.profile)
    async with platform.slots.taken(await platform.authorities.of(who)):
        return await platform.sandboxes.create(wanted, who, also=bind)


def _funding(request: Request, payment: Payment, now: datetime) -> Also:
    checkout = x402_of(request).checkout
    return lambda conn, sandbox_id: checkout.fund(conn, payment, sandbox_id, now)


def _both(first: Bind | None, second: Also) -> Also:
    def both(conn: Connection, sandbox_id: str) -> None:
        if first is not None:
            first(conn, sandbox_id)
        second(conn, sandbox_id)

    return both


async def _account_of_wallet(request: Request, presented: Presented) -> str:
    wallet = payer_wallet(presented)
    wallets = platform_of(request).wallets.wallets
    known = None if wallet is None else await wallets.find(wallet.caip10)
    if known is None or known.revoked_at is not None:
        raise Unauthenticated(why="this wallet has no account here", reason="wallet_unknown")
    return known.account


def _answer(made: records.Sandbox, payment: Payment, key: NewKey | None) -> Response:
    seen = answers.sandbox(made)
    body = PaidSandbox.model_construct(**dict(seen), payment=shown(payment), key=key)
    answer = json_response(body, 201)
    answer.headers["location"] = f"/v1/sandboxes/{made.id}"
    answer.headers.update(settled_headers(payment))
    return answer
