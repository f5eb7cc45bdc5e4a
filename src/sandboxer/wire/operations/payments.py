"""The operations on prices, payments, invoices and gift cards."""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sandboxer.wire.gift_cards import (
    ApprovalToken,
    AskBalance,
    BuyGiftCard,
    CardBalance,
    CardId,
    CardWord,
    GiftCard,
    GiftCardList,
    GiftPricing,
    NewGiftCard,
    NewRedemption,
    Redeem,
    Redemption,
    RedemptionId,
    RefundCard,
    RefundedCard,
    Revoke,
    ShowCode,
    ShownCode,
)
from sandboxer.wire.invoices import (
    AskInvoice,
    Invoice,
    InvoiceId,
    InvoiceList,
    InvoiceState,
    NewInvoice,
    RateList,
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
    Bytes,
    Events,
    Group,
    Idempotency,
    Json,
    Operation,
    Parameters,
    RateClass,
    Scope,
    Tool,
    created,
    needs,
)
from sandboxer.wire.payments import (
    Bought,
    BoughtKey,
    BuyKey,
    Goods,
    Payment,
    PaymentId,
    PaymentPage,
    TopUp,
    WellKnown,
)
from sandboxer.wire.pricing import AskQuote, Pricing, Quote
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PageLimit


class InvoicePath(Parameters):
    invoice_id: InvoiceId


class RefundPath(Parameters):
    refund_id: RefundId


class TokenPath(Parameters):
    token: ApprovalToken


class RedemptionPath(Parameters):
    redemption_id: RedemptionId


class CardPath(Parameters):
    card_id: CardId


class PaymentPath(Parameters):
    payment_id: PaymentId


class ListPaymentsQuery(Parameters):
    cursor: PaymentId | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = PAGE_LIMIT_DEFAULT


_PAYABLE = Group(
    noun="payments", needs=needs(Scope.ACCOUNT_MANAGE), access=Access.PAYABLE, failures=(402, 409)
)
_PUBLIC = Group(noun="payments", needs=NEVER_DELEGATED, access=Access.UNSIGNED, rate=RateClass.PUBLIC)
_PRICING = replace(_PUBLIC, noun="pricing")
# Prices follow rates, which are asked for about as often.
_FOUND = replace(_PUBLIC, cache_s=60)
BUY_KEY = _PAYABLE.operation(
    "buyKey",
    "POST /v1/keys/purchase",
    "Buy a tier for some months; a wallet without a key gets one",
    Answered(
        model=BoughtKey, status=201, also=((202, "Paid, but not settled yet; the tier begins when it is."),)
    ),
    body=BuyKey,
    idempotency=Idempotency.PLAIN,
    patience_s=120.0,
    tools=(Tool(),),
)
TOP_UP = _PAYABLE.operation(
    "topUp",
    "POST /v1/topups",
    "Buy credit for an account; anyone may pay for any",
    Answered(
        model=Bought, status=201, also=((202, "Paid, but not settled yet; it is credited when it is."),)
    ),
    body=TopUp,
    needs=ANY_KEY,
    idempotency=Idempotency.PLAIN,
    patience_s=120.0,
    failures=(404,),
    tools=(Tool(),),
)
LIST_PAYMENTS = Operation(
    id="listPayments",
    method="GET",
    path="/v1/payments",
    noun="payments",
    summary="List payments for this account, newest first",
    query=ListPaymentsQuery,
    answer=Answered(model=PaymentPage),
    needs=needs(Scope.ACCOUNT_READ),
    failures=(404,),
)
GET_PAYMENT = _PUBLIC.below("/v1/payments/{payment_id}", PaymentPath).operation(
    "getPayment", "GET", "Show what became of a payment", Payment, failures=(422,)
)
GET_X402 = _FOUND.operation(
    "getX402", "GET /.well-known/x402", "Show where payments by x402 are taken", WellKnown, failures=(503,)
)
LIST_GOODS = _FOUND.operation(
    "listGoods",
    "GET /discovery/resources",
    "List what is for sale, with offers at the least price",
    Goods,
    failures=(503,),
)
LIST_RATES = _PRICING.operation(
    "listRates", "GET /v1/rates", "List what each coin is worth in US dollars, and who says so", RateList
)
GET_PRICING = _PRICING.operation(
    "getPricing",
    "GET /v1/pricing",
    "Show every price",
    Pricing,
    tools=(Tool(),),
)
GET_PRICING_FOR_AGENTS = replace(_FOUND, noun="pricing").operation(
    "getPricingForAgents",
    "GET /pricing-for-agents.json",
    "Show every price, at the address where agents look for it",
    Pricing,
)
ASK_QUOTE = Operation(
    id="askQuote",
    method="POST",
    path="/v1/quotes",
    noun="pricing",
    summary="Quote what a sandbox would cost; create and extend may name the quote and pay these rates",
    body=Json(AskQuote),
    answer=Answered(model=Quote, status=201),
    needs=ANY_KEY,
    failures=(404, 409),
)


class ListInvoicesQuery(Parameters):
    state: InvoiceState | None = None
    cursor: InvoiceId | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


class ListRefundsQuery(Parameters):
    state: RefundWord | None = None
    cursor: RefundId | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


_INVOICE = replace(_PUBLIC, noun="invoices", failures=(422, 503)).below(
    "/v1/invoices/{invoice_id}", InvoicePath
)
# The owner of the platform sees all of them; whoever knows its id sees one.
_INVOICES = Group(noun="invoices", needs=NEVER_DELEGATED, access=Access.OWNER, failures=(404,))
CREATE_INVOICE = Operation(
    id="createInvoice",
    method="POST",
    path="/v1/invoices",
    noun="invoices",
    summary="Make an invoice: an address and an exact amount, for a tier or for sats",
    body=Json(AskInvoice),
    answer=Answered(model=NewInvoice, status=201),
    access=Access.EITHER,
    needs=ANY_KEY,
    rate=RateClass.AUTH,
    idempotency=Idempotency.BOUND,
    failures=(404, 409),
)
GET_INVOICE = _INVOICE.operation(
    "getInvoice", "GET", "Show what has arrived for an invoice; ask every 14 seconds", Invoice
)
DRAW_INVOICE = _INVOICE.operation(
    "drawInvoice",
    "GET /qr.svg",
    "Draw an invoice's payment URI as a QR code",
    Bytes(media_type="image/svg+xml", words="The payment URI as a picture.", is_text=True),
)
FOLLOW_INVOICE = _INVOICE.operation(
    "followInvoice",
    "GET /events",
    "Follow an invoice until it is settled",
    Events(words="`invoice` events, each an Invoice: as it is now, then after every change; ends settled."),
)
LIST_INVOICES = _INVOICES.operation(
    "listInvoices",
    "GET /v1/invoices",
    "List every invoice, newest first (owner)",
    InvoiceList,
    query=ListInvoicesQuery,
)
LOOK_AT_INVOICE = replace(_INVOICE, access=Access.OWNER, rate=RateClass.API, failures=(404,)).operation(
    "lookAtInvoice",
    "POST /look",
    "Look at an invoice's address now, also if it ended long ago (owner)",
    Invoice,
)
LIST_REFUNDS = _INVOICES.operation(
    "listRefunds",
    "GET /v1/refunds",
    "List refunds, oldest first (owner)",
    RefundList,
    query=ListRefundsQuery,
)
MARK_REFUND_SENT = _INVOICES.below("/v1/refunds/{refund_id}", RefundPath).operation(
    "markRefundSent",
    "POST /sent",
    "Record the transaction in which a refund was sent (owner)",
    Refund,
    body=SentRefund,
    failures=(409,),
)


class ListGiftCardsQuery(Parameters):
    state: CardWord | None = None
    cursor: CardId | None = None
    limit: PageLimit = PAGE_LIMIT_DEFAULT


_SHOWN = replace(_PUBLIC, noun="gift cards", path="/v1/gift-cards")
# Where words or tokens could be guessed.
_GUESSABLE = replace(_SHOWN, rate=RateClass.AUTH, failures=(404, 408, 413, 422, 503))
_APPROVAL = _GUESSABLE.below("/approvals/{token}", TokenPath)
_GIFT_CARDS = replace(
    _SHOWN,
    needs=needs(Scope.ACCOUNT_MANAGE),
    access=Access.EITHER,
    rate=RateClass.AUTH,
    failures=(401, 403, 404, 409),
)
_GIFT_CARD = _GIFT_CARDS.below("/{card_id}", CardPath)
_DECIDED = Answered(
    model=Redemption, other_form=("text/html", "The redemption as it is now; a page for browsers.")
)
SHOW_APPROVAL = _SHOWN.below("/approvals/{token}", TokenPath).operation(
    "showApproval",
    "GET",
    "Show what an approval link asks",
    Bytes(media_type="text/html", words="A page with two buttons; nothing changes.", is_text=True),
    failures=(409, 422),
)
APPROVE_REDEMPTION = _APPROVAL.operation(
    "approveRedemption",
    "POST /approve",
    "Approve a redemption; the link works once",
    _DECIDED,
    failures=(409,),
)
DENY_REDEMPTION = _APPROVAL.operation(
    "denyRedemption",
    "POST /deny",
    "Deny a redemption; the amount is on the card again",
    _DECIDED,
    failures=(409,),
)
GET_GIFT_PRICING = _SHOWN.operation(
    "getGiftPricing",
    "GET /pricing",
    "Show what gift cards there are, how they are paid and guarded",
    GiftPricing,
)
BUY_GIFT_CARD = _GIFT_CARDS.operation(
    "buyGiftCard",
    "POST",
    "Buy a gift card: by invoice, from one's balance, or given by the operator",
    created(NewGiftCard),
    body=BuyGiftCard,
    idempotency=Idempotency.SECRET,
    failures=(402,),
)
LIST_GIFT_CARDS = replace(_INVOICES, noun="gift cards").operation(
    "listGiftCards",
    "GET /v1/gift-cards",
    "List every gift card, newest first (owner)",
    GiftCardList,
    query=ListGiftCardsQuery,
)
REDEEM_GIFT_CARD = _GIFT_CARDS.operation(
    "redeemGiftCard",
    "POST /redeem",
    "Redeem a gift card's four words for a tier or for sats, whole or in part",
    Answered(model=NewRedemption, status=201, also=((202, "Somebody must approve it first."),)),
    body=Redeem,
    needs=ANY_KEY,
    is_repeatable=True,
    failures=(428,),
    tools=(Tool(),),
)
GET_GIFT_BALANCE = _GUESSABLE.operation(
    "getGiftBalance",
    "POST /balance",
    "Show what is left on a gift card, by its four words",
    CardBalance,
    body=AskBalance,
    is_repeatable=True,
    failures=(428,),
)
GET_REDEMPTION = _SHOWN.below("/redemptions/{redemption_id}", RedemptionPath).operation(
    "getRedemption",
    "GET",
    "Show what became of a redemption; ask every 14 seconds",
    Redemption,
    failures=(422,),
)
GET_GIFT_CARD = _SHOWN.below("/{card_id}", CardPath).operation(
    "getGiftCard",
    "GET",
    "Show a gift card; ask every 14 seconds until it is paid",
    GiftCard,
    failures=(422,),
)
SHOW_GIFT_CODE = _GIFT_CARD.operation(
    "showGiftCode",
    "POST /code",
    "Show the four words of a paid gift card, once (buyer)",
    ShownCode,
    body=ShowCode,
)
REVOKE_GIFT_CARD = _GIFT_CARD.operation(
    "revokeGiftCard",
    "POST /revoke",
    "Revoke a gift card: nothing can be redeemed any more (buyer, owner)",
    GiftCard,
    body=Revoke,
    is_repeatable=True,
    is_lossy=True,
)
REFUND_GIFT_CARD = _GIFT_CARD.operation(
    "refundGiftCard",
    "POST /refund",
    "Refund what is left on a gift card: as sats, or to a coin address less a fee (buyer, owner)",
    RefundedCard,
    body=RefundCard,
    is_lossy=True,
)
