"""Payments that come with a request: what every purchase shares, and the purchase of sandboxes and time for
them.

The order matters: the request is judged first, then an Idempotency-Key is looked up, and only then the
payment. A sandbox is provisioned first and settled afterwards; if either fails, neither stays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts.records import Payable
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.authentication import CALLER, STRANGER, target_of
from sandboxer.edges.http.demands import demand_scope, gate_proof
from sandboxer.edges.http.idempotency import Act, Bind, Recall, once_bound
from sandboxer.edges.http.problems import ANSWER_HEADERS
from sandboxer.edges.http.requests import caller, platform_of
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import (
    InsufficientCredit,
    NotAvailable,
    PaymentNeeded,
    PaymentRefused,
    SandboxerError,
    Unauthenticated,
)
from sandboxer.kernel.program import late
from sandboxer.payments.goods import key_for_payer
from sandboxer.payments.lifecycle import IN_FLIGHT, State
from sandboxer.payments.records import Payment, Purpose
from sandboxer.payments.x402 import presented as presenting
from sandboxer.payments.x402.checkout import Taken, is_delivered, refusal_of
from sandboxer.payments.x402.dependencies import X402
from sandboxer.payments.x402.offers import as_offer
from sandboxer.payments.x402.presented import Presented, Wanted, payer_wallet
from sandboxer.sandboxes import records
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases.admission import price_of_extend
from sandboxer.wire.operations.declaration import Scope

if TYPE_CHECKING:
    from x402 import schemas
    from x402.http import utils as x402_headers

    from sandboxer.wire import keys
    from sandboxer.wire import payments as wire
else:
    keys, wire = late("sandboxer.wire.keys"), late("sandboxer.wire.payments")
    schemas, x402_headers = late("x402.schemas"), late("x402.http.utils")

PAYMENT_RESPONSE = "payment-response"
PAYMENT_ID = "x-payment-id"
_SECRET_FIELDS = ("key",)


def x402_of(request: Request) -> X402:
    """Returns the checkout. Raises NotAvailable if the operator accepts no such payments."""
    if (x402 := platform_of(request).payments.x402) is None:
        raise NotAvailable(what="Payment by x402", why="the operator has not set it up")
    return x402


def presented_in(request: Request) -> Presented | None:
    """Returns the payment in the request's headers, if there is one that is of use to this caller."""
    headers = request.scope["headers"]
    if presenting.payment_header(headers) is None:
        return None
    if not is_stranger(request) and caller(request).is_owner:
        # The owner pays nothing, so no payment is taken.
        return None
    return x402_of(request).checkout.present(headers)


def is_stranger(request: Request) -> bool:
    return STRANGER in request.scope


def known_account(request: Request) -> str | None:
    return None if is_stranger(request) else caller(request).account


async def request_hash(request: Request) -> str:
    """Returns a hash of what is asked and who asks, so that one payment does not serve a second account."""
    digest = hashlib.sha256(f"{request.method} {target_of(request.scope)}\n".encode())
    digest.update(await request.body())
    return f"{digest.hexdigest()}:{known_account(request) or ''}"


@asynccontextmanager
async def asking(request: Request, payable: Payable, sats: int, *, tag: str = "") -> AsyncIterator[None]:
    """Answers a payment that is refused, or not sufficient, with new offers."""
    try:
        yield
    except (PaymentRefused, InsufficientCredit, PaymentNeeded) as error:
        reason = str(error.facts.get("reason", error.code))
        try:
            required = await x402_of(request).asking.required(payable, sats, tag=tag, error=reason)
        except SandboxerError as why:
            error.facts["payment_error"] = str(why)
            raise error from None
        offer = as_offer(required)
        request.scope[ANSWER_HEADERS] = dict(offer.headers)
        error.facts.update({name: fact for name, fact in offer.facts.items() if name not in error.facts})
        raise


@asynccontextmanager
async def taken(request: Request, presented: Presented, wanted: Wanted) -> AsyncIterator[Taken]:
    """The payment in hand; from here on the request has a caller, if it had none: who paid."""
    async with x402_of(request).checkout.take(presented, wanted) as hand:
        if is_stranger(request):
            request.scope[CALLER] = payer_of(hand.payment)
        yield hand


async def settled(request: Request, hand: Taken) -> Payment:
    """Returns the payment, settled now if it is new. Raises what refused it."""
    payment = await x402_of(request).checkout.settle(hand.payment) if hand.is_new else hand.payment
    if not is_delivered(payment):
        raise refusal_of(payment)
    return payment


def payer_of(payment: Payment) -> Caller:
    """Returns the caller for whoever paid: the account of the wallet."""
    return Caller(public_key=payment.wallet, account=payment.account)


async def purchase(
    request: Request, presented: Presented, act: Act, *, recall: Recall | None = None
) -> Response:
    """Runs once for each Idempotency-Key, in a task that outlives the caller; its secret is never kept."""
    x402 = x402_of(request)

    async def go_on(bind: Any) -> Response:
        return await x402.purchase_tasks.finish(_awaited(act(bind)), name=f"purchase {request.url.path}")

    if not is_stranger(request):
        return await once_bound(request, go_on, recall=recall, redact=without_secrets)
    if (owner := _proven_wallet(presented)) is None:
        # Before the chain confirms, nothing proves who asks; the payment itself is the only key.
        return await go_on(None)
    return await once_bound(request, go_on, recall=recall, redact=without_secrets, owner=owner)


async def _awaited(work: Awaitable[Response]) -> Response:
    return await work


def _proven_wallet(presented: Presented) -> str | None:
    """Returns the payer if the payment has the payer's own signature: others must not see the payer's
    answers.
    """
    way, authorization = presented.way, presented.authorization
    if way is None or authorization is None:
        return None
    if not way.reader.is_signed(presented.payload, presented.payload.accepted):
        return None
    return f"wallet:{authorization.payer}"


def without_secrets(body: bytes) -> bytes:
    """Returns the answer as it is kept for repetitions."""
    document = json.loads(body)
    return json.dumps({**document, **{name: None for name in _SECRET_FIELDS if name in document}}).encode()


async def new_key(request: Request, payment: Payment, *, is_payer: bool) -> keys.NewKey | None:
    """Makes a key for a wallet that paid and has none, in the answer to the very request that brought the
    payment.

    Once broadcast, a payment's signature can be copied by anyone; later the wallet has to sign in, or pay
    again.
    """
    if not is_payer:
        return None
    platform, x402 = platform_of(request), x402_of(request)
    now = platform.clock.now()
    made = await platform.store.write(lambda conn: key_for_payer(conn, x402.keys, payment, now=now))
    return None if made is None else from_record(keys.NewKey, made)


def shown(payment: Payment) -> wire.Payment:
    return from_record(
        wire.Payment,
        payment,
        amount=str(payment.amount),
        transaction=payment.txid,
        sandbox_id=payment.details.get("sandbox_id"),
    )


def settled_headers(payment: Payment) -> Mapping[str, str]:
    """Returns x402's headers about the settlement; `settlement_pending` is neither success nor failure."""
    is_moving = payment.state in IN_FLIGHT and payment.state is not State.MEMPOOL
    answer = schemas.SettleResponse(
        success=not is_moving,
        error_reason="settlement_pending" if is_moving else None,
        transaction=payment.txid or "",
        network=payment.network,
        payer=payment.payer,
        amount=str(payment.amount),
        extra={"paymentId": payment.id, "status": payment.state.value},
    )
    return {PAYMENT_RESPONSE: x402_headers.encode_payment_response_header(answer), PAYMENT_ID: payment.id}


async def buy_sandbox(request: Request, wanted: CreateRequest, presented: Presented) -> Response:
    """Makes a sandbox and always waits until it is ready: only what was made is paid for."""
    was_stranger = is_stranger(request)
    account = known_account(request)
    purchases = platform_of(request).purchases
    price = purchases.price(wanted, account)
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
            made, payment = await purchases.buy(
                wanted,
                caller(request),
                hand,
                x402_of(request).checkout,
                proof=gate_proof(request),
                also=bind,
            )
            key = await new_key(request, payment, is_payer=was_stranger and hand.is_new)
            return _answer(made, payment, key)

    async def recall(sandbox_id: str) -> Response | None:
        made = await purchases.recall(sandbox_id, account)
        return None if made is None else json_response(answers.sandbox(made), 201)

    return await purchase(request, presented, act, recall=recall)


async def named_payer(request: Request, presented: Presented) -> Caller:
    """Returns the caller, or whom the payment names: enough for what must be checked before the payment is
    taken.

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
    """Verifies the payment before a stranger is told what refuses the request.

    Otherwise whoever names somebody's wallet could learn from the answer which sandboxes belong to that
    wallet.
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
    """Takes a payment for more time; granting the time, and whether it may be had, is up to the caller.

    `named_payer` comes first. Raises what refuses the payment.
    """
    account = caller(request).account
    # A wallet may be linked to a delegated key: paying gives it no scope that the key lacks.
    await demand_scope(request, Scope.SANDBOXES_MANAGE)
    order = await _more_time(request, sandbox_id, account)
    x402 = x402_of(request)
    payable = price_of_extend(sandbox_id, account).payable

    async def pay() -> Payment:
        minimum = x402.settings.minimum_sats
        async with asking(request, payable, minimum), taken(request, presented, order) as hand:
            return await settled(request, hand)

    return await x402.purchase_tasks.finish(pay(), name=f"extend {sandbox_id}")


async def _account_of_wallet(request: Request, presented: Presented) -> str:
    wallet = payer_wallet(presented)
    wallets = platform_of(request).wallets.wallets
    known = None if wallet is None else await wallets.find(wallet.caip10)
    if known is None or known.revoked_at is not None:
        raise Unauthenticated(why="this wallet has no account here", reason="wallet_unknown")
    return known.account


def _answer(made: records.Sandbox, payment: Payment, key: keys.NewKey | None) -> Response:
    seen = answers.sandbox(made)
    body = wire.PaidSandbox.model_construct(**dict(seen), payment=shown(payment), key=key)
    answer = json_response(body, 201, location=f"/v1/sandboxes/{made.id}")
    answer.headers.update(settled_headers(payment))
    return answer
