# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on invoices."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxer.sdk.call import (
    BYTES,
    EVENT_STREAM,
    NOTHING,
    STREAM_TIMEOUT_S,
    Call,
    headers_of,
    json_body,
    target_of,
)

if TYPE_CHECKING:
    from sandboxer.wire.invoices import Invoice, InvoiceList, NewInvoice, Refund, RefundList


def create_invoice(
    *,
    currency: str,
    tier: int | None = None,
    months: int | None = None,
    sats: int | None = None,
    account: str | None = None,
    refund_address: str | None = None,
    idempotency_key: str | None = None,
) -> Call[NewInvoice]:
    """Make an invoice: an address and an exact amount, for a tier or for sats."""
    return Call(
        operation="createInvoice",
        method="POST",
        target="/v1/invoices",
        answer="sandboxer.wire.invoices:NewInvoice",
        body=json_body(
            {"currency": currency},
            tier=tier,
            months=months,
            sats=sats,
            account=account,
            refund_address=refund_address,
        ),
        headers=headers_of(content_type="application/json", idempotency_key=idempotency_key),
        is_repeatable=idempotency_key is not None,
    )


def get_invoice(invoice_id: str) -> Call[Invoice]:
    """Show what has arrived for an invoice; ask every 14 seconds."""
    return Call(
        operation="getInvoice",
        method="GET",
        target=target_of("/v1/invoices/{}", invoice_id),
        answer="sandboxer.wire.invoices:Invoice",
    )


def draw_invoice(invoice_id: str) -> Call[bytes]:
    """Draw an invoice's payment URI as a QR code."""
    return Call(
        operation="drawInvoice",
        method="GET",
        target=target_of("/v1/invoices/{}/qr.svg", invoice_id),
        answer=BYTES,
        timeout_s=STREAM_TIMEOUT_S,
    )


def follow_invoice(invoice_id: str) -> Call[None]:
    """Follow an invoice until it is settled."""
    return Call(
        operation="followInvoice",
        method="GET",
        target=target_of("/v1/invoices/{}/events", invoice_id),
        answer=NOTHING,
        headers=headers_of(accept=EVENT_STREAM),
        timeout_s=STREAM_TIMEOUT_S,
    )


def list_invoices(
    *, state: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[InvoiceList]:
    """List every invoice, newest first (owner)."""
    return Call(
        operation="listInvoices",
        method="GET",
        target=target_of("/v1/invoices", state=state, cursor=cursor, limit=limit),
        answer="sandboxer.wire.invoices:InvoiceList",
    )


def look_at_invoice(invoice_id: str) -> Call[Invoice]:
    """Look at an invoice's address now, also if it ended long ago (owner)."""
    return Call(
        operation="lookAtInvoice",
        method="POST",
        target=target_of("/v1/invoices/{}/look", invoice_id),
        answer="sandboxer.wire.invoices:Invoice",
    )


def list_refunds(
    *, state: str | None = None, cursor: str | None = None, limit: int | None = None
) -> Call[RefundList]:
    """List refunds, oldest first (owner)."""
    return Call(
        operation="listRefunds",
        method="GET",
        target=target_of("/v1/refunds", state=state, cursor=cursor, limit=limit),
        answer="sandboxer.wire.invoices:RefundList",
    )


def mark_refund_sent(refund_id: str, *, txid: str) -> Call[Refund]:
    """Record the transaction in which a refund was sent (owner)."""
    return Call(
        operation="markRefundSent",
        method="POST",
        target=target_of("/v1/refunds/{}/sent", refund_id),
        answer="sandboxer.wire.invoices:Refund",
        body=json_body({"txid": txid}),
        headers=headers_of(content_type="application/json"),
    )
