# Written by scripts/generate-sync from sdk/aio/payments.py. Do not edit.
"""`client.payments`: pay with a wallet, look at what was paid, blocking.

`client.invoices`: pay in coins, blocking. Asking and looking need no key of one's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandboxer.sdk.call import new_idempotency_key, parse
from sandboxer.sdk.calls import invoices, keys, payments
from sandboxer.sdk.sync.line import Line, pages, server_events
from sandboxer.wire import invoices as invoice_models
from sandboxer.wire import payments as wire
from sandboxer.wire.keys import NewKey


class Payments:
    def __init__(self, line: Line) -> None:
        self._line = line

    def top_up(self, sats: int, *, account: str | None = None) -> wire.Bought:
        """Credit for one's own account, or for anybody's by public id; the client's wallet pays."""
        return self._line.send(
            payments.top_up(sats=sats, account=account, idempotency_key=new_idempotency_key())
        )

    def buy_key(self, tier: int, months: int = 1) -> wire.BoughtKey:
        """A tier for some months; a wallet without a key gets one, and the client signs with it from now."""
        call = payments.buy_key(tier=tier, months=months, idempotency_key=new_idempotency_key())
        return self._line.send(call)

    def get(self, payment_id: str) -> wire.Payment:
        return self._line.send(payments.get_payment(payment_id))

    def list(self, *, limit: int | None = None) -> Iterator[wire.Payment]:
        """All of one's own, newest first, page by page."""
        for page in pages(self._line, lambda cursor: payments.list_payments(cursor=cursor, limit=limit)):
            yield from page.payments

    def goods(self) -> Sequence[wire.Good]:
        """Lists what is for sale, with offers at the least price."""
        return self._line.send(payments.list_goods()).items


class Invoices:
    def __init__(self, line: Line) -> None:
        self._line = line

    def create(
        self,
        currency: str,
        *,
        tier: int | None = None,
        months: int | None = None,
        sats: int | None = None,
        account: str | None = None,
        refund_address: str | None = None,
        idempotency_key: str | None = None,
    ) -> invoice_models.NewInvoice:
        """For a tier and months, or for sats; `account` is a public id, without it a new one is made.

        Repeated with the same key it is the same invoice; for a new account, a key of 22 characters or more.
        """
        call = invoices.create_invoice(
            currency=currency,
            tier=tier,
            months=months,
            sats=sats,
            account=account,
            refund_address=refund_address,
            idempotency_key=idempotency_key,
        )
        return self._line.send(call)

    def get(self, invoice_id: str) -> invoice_models.Invoice:
        return self._line.send(invoices.get_invoice(invoice_id))

    def qr_svg(self, invoice_id: str) -> bytes:
        """Returns the picture that a wallet scans."""
        return self._line.send(invoices.draw_invoice(invoice_id))

    def follow(self, invoice_id: str) -> Iterator[invoice_models.Invoice]:
        """Yields the invoice as it is, then after each change, until it is settled."""
        for event in server_events(self._line, invoices.follow_invoice(invoice_id)):
            yield parse(invoice_models.Invoice, event.data)

    def claim_key(self, public_key: str, claim: str) -> NewKey:
        """Shows the secret of the key that an invoice bought, once."""
        return self._line.send(keys.reveal_key(public_key, claim=claim))

    def page(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> invoice_models.InvoiceList:
        """Returns one page, newest first; for the operator."""
        return self._line.send(invoices.list_invoices(state=state, cursor=cursor, limit=limit))

    def look(self, invoice_id: str) -> invoice_models.Invoice:
        """Has its address looked at now; for the operator."""
        return self._line.send(invoices.look_at_invoice(invoice_id))

    def refunds(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> invoice_models.RefundList:
        """Returns one page, oldest first; for the operator."""
        return self._line.send(invoices.list_refunds(state=state, cursor=cursor, limit=limit))

    def refund_sent(self, refund_id: str, txid: str) -> invoice_models.Refund:
        return self._line.send(invoices.mark_refund_sent(refund_id, txid=txid))

    def rates(self) -> Sequence[invoice_models.RateLine]:
        return self._line.send(payments.list_rates()).rates
