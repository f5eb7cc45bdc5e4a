"""Routes of invoices: anyone may ask for one and see what became of it; the operator sends refunds."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.authentication import address_of
from sandboxer.edges.http.binding import Asked, AskedBody, AskedPathBody, AskedQuery, bind
from sandboxer.edges.http.bodies import EventStream, ServerEvent
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.purchases import known_account
from sandboxer.edges.http.requests import platform_of
from sandboxer.identity.key_life import Claim
from sandboxer.kernel.program import late
from sandboxer.payments.invoices import records
from sandboxer.payments.invoices.records import Invoice, Output, RefundState, State
from sandboxer.payments.invoices.use_cases import Order, Ordered, View
from sandboxer.payments.rates import ASSETS, as_text
from sandboxer.wire import invoices as wire
from sandboxer.wire.operations import payments as operations
from sandboxer.wiring import Platform

if TYPE_CHECKING:
    import segno
else:
    segno = late("segno")

SVG = "image/svg+xml"
# The length of a key with 128 bits: two strangers behind one address must not collide.
UNGUESSABLE = 22


async def create(asked: AskedBody[wire.AskInvoice]) -> Response:
    platform = asked.platform
    # The limit on open invoices counts it, as every other limit does.
    asker = address_of(asked.request.scope, platform)
    claim = None if asked.body.account is not None else await _repeatable_claim(asked.request, asker)
    order = Order(
        asset=asked.body.currency,
        asked_by=asker,
        caller=known_account(asked.request),
        claim=claim,
        tier=asked.body.tier,
        months=asked.body.months,
        sats=asked.body.sats,
        account=asked.body.account,
        refund_address=asked.body.refund_address,
    )

    async def act(bind: Bind | None) -> Response:
        ordered = await platform.payments.invoices.create(order, also=bind)
        return _made(new_invoice(ordered))

    async def recall(invoice_id: str) -> Response | None:
        view = await platform.payments.invoices.view(invoice_id)
        return _made(_with_token(view, claim))

    # For a known account nothing in the answer is secret. The claim of a new one is kept nowhere, and shown
    # again only to who can repeat the secret it was made of.
    is_repeatable = asked.body.account is not None or claim is not None
    answer = await once_bound(
        asked.request,
        act,
        recall=recall if is_repeatable else None,
        keep_answer=is_repeatable,
        redact=lambda kept: _with_claim(kept, None),
        owner=f"address:{asker}",
    )
    if claim is None or "idempotent-replayed" not in answer.headers:
        return answer
    response = Response(_with_claim(bytes(answer.body), claim.token), answer.status_code)
    response.raw_headers += [pair for pair in answer.raw_headers if pair[0] != b"content-length"]
    return response


async def _repeatable_claim(request: Request, asker: str) -> Claim | None:
    """Derives the claim from an Idempotency-Key that is too long to be guessed or met by chance: it stands
    for who asked.
    """
    key = request.headers.get("idempotency-key", "")
    if len(key) < UNGUESSABLE:
        return None
    asked = f"{asker}\n{hashlib.sha256(await request.body()).hexdigest()}"
    return platform_of(request).key_life.claim_for(key, asked)


def _with_claim(body: bytes, claim: str | None) -> bytes:
    return json.dumps({**json.loads(body), "claim": claim}, separators=(",", ":")).encode()


def _made(made: wire.NewInvoice) -> Response:
    return json_response(made, 201, location=f"/v1/invoices/{made.id}")


def new_invoice(ordered: Ordered) -> wire.NewInvoice:
    """Shows an invoice that nobody has paid yet, with the claim on what it buys."""
    view = View(invoice=ordered.invoice, outputs=(), refunds=(), steps=(), uri=ordered.uri)
    return _with_token(view, ordered.claim)


def _with_token(view: View, claim: Claim | None) -> wire.NewInvoice:
    return wire.NewInvoice(**invoice(view).model_dump(), claim=None if claim is None else claim.token)


async def show(asked: Asked[operations.InvoicePath]) -> wire.Invoice:
    return invoice(await asked.platform.payments.invoices.view(asked.path.invoice_id))


async def draw(asked: Asked[operations.InvoicePath]) -> Response:
    view = await asked.platform.payments.invoices.view(asked.path.invoice_id)
    return Response(picture_of(view.uri), media_type=SVG)


def picture_of(uri: str) -> str:
    """Returns a small SVG that stands alone; black on white whatever the page's colours are, or scanners
    fail.
    """
    out = io.BytesIO()
    segno.make(uri, micro=False, error="m").save(out, kind="svg", scale=4, light="white", xmldecl=False)
    return out.getvalue().decode()


async def follow(asked: Asked[operations.InvoicePath]) -> Response:
    platform = asked.platform
    # Raises NotFound before the stream begins.
    await platform.payments.invoices.view(asked.path.invoice_id)
    return EventStream(_followed(platform, asked.path.invoice_id))


async def listing(asked: AskedQuery[operations.ListInvoicesQuery]) -> wire.InvoiceList:
    cursor = asked.query.cursor
    use_cases = asked.platform.payments.invoices
    wanted = None if asked.query.state is None else State(asked.query.state)
    found = await use_cases.page(state=wanted, after=cursor, limit=asked.query.limit)
    shown = [
        invoice(View(invoice=one, outputs=(), refunds=(), steps=(), uri=use_cases.uri(one))) for one in found
    ]
    cursor = found[-1].id if len(found) == asked.query.limit else None
    return wire.InvoiceList(invoices=shown, next_cursor=cursor)


async def look(asked: Asked[operations.InvoicePath]) -> wire.Invoice:
    use_cases = asked.platform.payments.invoices
    await use_cases.look_again(asked.path.invoice_id)
    return invoice(await use_cases.view(asked.path.invoice_id))


async def refunds(asked: AskedQuery[operations.ListRefundsQuery]) -> wire.RefundList:
    cursor = asked.query.cursor
    found = await asked.platform.payments.invoices.refunds(
        state=None if asked.query.state is None else RefundState(asked.query.state),
        after=cursor,
        limit=asked.query.limit,
    )
    cursor = found[-1].id if len(found) == asked.query.limit else None
    return wire.RefundList(refunds=[refund(one) for one in found], next_cursor=cursor)


async def sent(asked: AskedPathBody[operations.RefundPath, wire.SentRefund]) -> wire.Refund:
    use_cases = asked.platform.payments.invoices
    return refund(await use_cases.refund_sent(asked.path.refund_id, asked.body.txid, actor=asked.actor))


def invoice(view: View) -> wire.Invoice:
    one, asset = view.invoice, ASSETS[view.invoice.price.asset]
    received = sum(o.amount for o in view.outputs if o.is_money)
    return wire.Invoice(
        id=one.id,
        state=one.state.value,
        is_settled=one.is_settled,
        kind=one.buys.kind,
        tier=one.buys.tier,
        months=one.buys.months,
        usd_cents=one.buys.cents,
        sats=one.price.sats,
        currency=asset.code,
        amount=as_text(one.price.atomic, asset),
        atomic=str(one.price.atomic),
        usd_rate=None if one.price.usd is None else str(one.price.usd),
        btc_usd_rate=None if one.price.btc_usd is None else str(one.price.btc_usd),
        address=one.address,
        payment_uri=view.uri,
        refund_address=one.refund_address,
        confirmations_needed=one.confirmations,
        confirmations=_confirmations(one, view.outputs),
        received=as_text(received, asset),
        payments=[_payment(output) for output in view.outputs],
        # The reason why one is held reveals caps and nodes, which concern only the operator.
        refunds=[refund(replace(one, held=None)) for one in view.refunds],
        history=[from_record(wire.InvoiceStep, s) for s in view.steps],
        public_key=one.public_key,
        created_at=one.created_at,
        expires_at=one.expires_at,
    )


def refund(one: records.Refund) -> wire.Refund:
    return from_record(
        wire.Refund,
        one,
        currency=one.chain,
        received_atomic=str(one.received),
        amount=as_text(one.amount, ASSETS[one.chain]),
        amount_atomic=str(one.amount),
        kept_atomic=str(one.kept),
        fee_atomic=None if one.fee is None else str(one.fee),
    )


def _payment(output: Output) -> wire.Payment:
    return from_record(
        wire.Payment,
        output,
        amount=as_text(output.amount, ASSETS[output.chain]),
        atomic=str(output.amount),
        confirmations=output.depth,
        is_there=output.is_money,
        sats=output.sale_sats + output.bucket_sats,
    )


def _confirmations(one: Invoice, outputs: tuple[Output, ...]) -> int:
    depths = [output.depth for output in outputs if output.is_money]
    return min(min(depths), one.confirmations) if depths else 0


async def _followed(platform: Platform, invoice_id: str) -> AsyncIterator[ServerEvent]:
    use_cases = platform.payments.invoices
    # Followed from the newest event on; what happens before the first look is sent after it.
    after = await platform.events.last_id()
    view = await use_cases.view(invoice_id)
    yield ServerEvent("invoice", invoice(view))
    async with aclosing(platform.events.follow(invoice_id, after)) as happening:  # type: ignore[type-var]
        while not view.invoice.is_settled:
            if (event := await anext(happening, None)) is None:
                return
            view = await use_cases.view(invoice_id)
            yield ServerEvent("invoice", invoice(view), str(event.id))


BINDINGS = (
    bind(operations.CREATE_INVOICE, create),
    bind(operations.GET_INVOICE, show),
    bind(operations.DRAW_INVOICE, draw),
    bind(operations.FOLLOW_INVOICE, follow),
    bind(operations.LIST_INVOICES, listing),
    bind(operations.LOOK_AT_INVOICE, look),
    bind(operations.LIST_REFUNDS, refunds),
    bind(operations.MARK_REFUND_SENT, sent),
)
