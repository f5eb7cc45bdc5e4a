"""Paying by invoice: ask for one, see what became of it; the operator's lists and refunds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxer.sdk.calls import Call, json_body, target
from sandboxer.sdk.routes.reading import content, model, nothing
from sandboxer.sdk.routes.sandboxes import STREAM_TIMEOUT_S
from sandboxer.wire import invoices as wire
from sandboxer.wire.keys import NewKey


def create(wanted: Mapping[str, Any], *, idempotency_key: str | None = None) -> Call[wire.NewInvoice]:
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    key = {} if idempotency_key is None else {"idempotency-key": idempotency_key}
    return Call(
        method="POST",
        target="/v1/invoices",
        body=body,
        headers={**headers, **key},
        read=model(wire.NewInvoice),
        is_repeatable=idempotency_key is not None,
    )


def get(invoice_id: str) -> Call[wire.Invoice]:
    return Call(method="GET", target=target("/v1/invoices/{}", invoice_id), read=model(wire.Invoice))


def qr_svg(invoice_id: str) -> Call[bytes]:
    return Call(method="GET", target=target("/v1/invoices/{}/qr.svg", invoice_id), read=content)


def follow(invoice_id: str) -> Call[None]:
    """A stream of server-sent events."""
    return Call(
        method="GET",
        target=target("/v1/invoices/{}/events", invoice_id),
        headers={"accept": "text/event-stream"},
        read=nothing,
        timeout_s=STREAM_TIMEOUT_S,
    )


def claim_key(public_key: str, claim: str) -> Call[NewKey]:
    body, headers = json_body({"claim": claim})
    where = target("/v1/keys/{}/reveal", public_key)
    return Call(method="POST", target=where, body=body, headers=headers, read=model(NewKey))


def page(*, state: str | None, cursor: str | None, limit: int | None) -> Call[wire.InvoiceList]:
    where = target("/v1/invoices", query={"state": state, "cursor": cursor, "limit": limit})
    return Call(method="GET", target=where, read=model(wire.InvoiceList))


def look(invoice_id: str) -> Call[wire.Invoice]:
    where = target("/v1/invoices/{}/look", invoice_id)
    return Call(method="POST", target=where, read=model(wire.Invoice))


def refunds(*, state: str | None, cursor: str | None, limit: int | None) -> Call[wire.RefundList]:
    where = target("/v1/refunds", query={"state": state, "cursor": cursor, "limit": limit})
    return Call(method="GET", target=where, read=model(wire.RefundList))


def refund_sent(refund_id: str, txid: str) -> Call[wire.Refund]:
    body, headers = json_body({"txid": txid})
    where = target("/v1/refunds/{}/sent", refund_id)
    return Call(method="POST", target=where, body=body, headers=headers, read=model(wire.Refund))


def rates() -> Call[wire.RateList]:
    return Call(method="GET", target="/v1/rates", read=model(wire.RateList))
