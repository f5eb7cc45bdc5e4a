"""The operations on invoices."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from sandboxer.wire.invoices import (
    AskInvoice,
    Invoice,
    InvoiceId,
    InvoiceList,
    InvoiceState,
    NewInvoice,
    Refund,
    RefundId,
    RefundList,
    RefundWord,
    SentRefund,
)
from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    Answered,
    AnyOperation,
    Bytes,
    Events,
    Idempotency,
    Json,
    Operation,
    Parameters,
    RateClass,
)
from sandboxer.wire.operations.paths import InvoicePath, RefundPath
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX


class ListInvoicesQuery(Parameters):
    state: InvoiceState | None = None
    cursor: InvoiceId | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


class ListRefundsQuery(Parameters):
    state: RefundWord | None = None
    cursor: RefundId | None = None
    limit: Annotated[int, Field(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT


CREATE_INVOICE = Operation(
    id="createInvoice",
    method="POST",
    path="/v1/invoices",
    noun="invoices",
    summary="An address and an exact amount, for a tier or for sats",
    body=Json(AskInvoice),
    answer=Answered(model=NewInvoice, status=201),
    access=Access.EITHER,
    needs=ANY_KEY,
    rate=RateClass.AUTH,
    idempotency=Idempotency.BOUND,
    failures=(404, 409),
)
GET_INVOICE = Operation(
    id="getInvoice",
    method="GET",
    path="/v1/invoices/{invoice_id}",
    noun="invoices",
    summary="What has arrived, and what became of it; ask every 14 seconds",
    parameters=InvoicePath,
    answer=Answered(model=Invoice),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422, 503),
)
DRAW_INVOICE = Operation(
    id="drawInvoice",
    method="GET",
    path="/v1/invoices/{invoice_id}/qr.svg",
    noun="invoices",
    summary="The payment URI as a QR code",
    parameters=InvoicePath,
    answer=Bytes(media_type="image/svg+xml", words="The payment URI as a picture.", is_text=True),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422, 503),
)
FOLLOW_INVOICE = Operation(
    id="followInvoice",
    method="GET",
    path="/v1/invoices/{invoice_id}/events",
    noun="invoices",
    summary="The same as a stream, until it is settled",
    parameters=InvoicePath,
    answer=Events(
        words="`invoice` events, each an Invoice: as it is now, then after every change; ends settled."
    ),
    access=Access.UNSIGNED,
    needs=NEVER_DELEGATED,
    rate=RateClass.PUBLIC,
    failures=(404, 422, 503),
)
LIST_INVOICES = Operation(
    id="listInvoices",
    method="GET",
    path="/v1/invoices",
    noun="invoices",
    summary="Every invoice, newest first (owner)",
    query=ListInvoicesQuery,
    answer=Answered(model=InvoiceList),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404,),
)
LOOK_AT_INVOICE = Operation(
    id="lookAtInvoice",
    method="POST",
    path="/v1/invoices/{invoice_id}/look",
    noun="invoices",
    summary="Look at its address now, also if it ended long ago (owner)",
    parameters=InvoicePath,
    answer=Answered(model=Invoice),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404,),
)
LIST_REFUNDS = Operation(
    id="listRefunds",
    method="GET",
    path="/v1/refunds",
    noun="invoices",
    summary="What has to go back, oldest first (owner)",
    query=ListRefundsQuery,
    answer=Answered(model=RefundList),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404,),
)
MARK_REFUND_SENT = Operation(
    id="markRefundSent",
    method="POST",
    path="/v1/refunds/{refund_id}/sent",
    noun="invoices",
    summary="It was signed and sent in this transaction (owner)",
    parameters=RefundPath,
    body=Json(SentRefund),
    answer=Answered(model=Refund),
    access=Access.OWNER,
    needs=NEVER_DELEGATED,
    failures=(404, 409),
)

OPERATIONS: tuple[AnyOperation, ...] = (
    CREATE_INVOICE,
    GET_INVOICE,
    DRAW_INVOICE,
    FOLLOW_INVOICE,
    LIST_INVOICES,
    LOOK_AT_INVOICE,
    LIST_REFUNDS,
    MARK_REFUND_SENT,
)
