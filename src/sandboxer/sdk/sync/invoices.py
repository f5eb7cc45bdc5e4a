"""`client.invoices`: pay in coins, blocking. Asking and looking need no key of one's own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandboxer.sdk.routes import invoices as routes
from sandboxer.sdk.routes.reading import parse
from sandboxer.sdk.sync.line import Line
from sandboxer.sdk.sync.streams import server_events
from sandboxer.wire import invoices as wire
from sandboxer.wire.keys import NewKey


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
    ) -> wire.NewInvoice:
        """For a tier and months, or for sats; `account` is a public id, without it a new one is made.

        Repeated with the same key it is the same invoice; for a new account, a key of 22 characters or more.
        """
        wanted = {"currency": currency, "tier": tier, "months": months, "sats": sats, "account": account}
        wanted["refund_address"] = refund_address
        return self._line.do(routes.create(wanted, idempotency_key=idempotency_key))

    def get(self, invoice_id: str) -> wire.Invoice:
        return self._line.do(routes.get(invoice_id))

    def qr_svg(self, invoice_id: str) -> bytes:
        """What a wallet scans, as a picture."""
        return self._line.do(routes.qr_svg(invoice_id))

    def follow(self, invoice_id: str) -> Iterator[wire.Invoice]:
        """As it is, then after each change, until it is settled."""
        for event in server_events(self._line, routes.follow(invoice_id)):
            yield parse(wire.Invoice, event.data)

    def claim_key(self, public_key: str, claim: str) -> NewKey:
        """The secret of the key that an invoice bought; shown once."""
        return self._line.do(routes.claim_key(public_key, claim))

    def page(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> wire.InvoiceList:
        """One page, newest first; for the operator."""
        return self._line.do(routes.page(state=state, cursor=cursor, limit=limit))

    def look(self, invoice_id: str) -> wire.Invoice:
        """Have its address looked at now; for the operator."""
        return self._line.do(routes.look(invoice_id))

    def refunds(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> wire.RefundList:
        """One page, oldest first; for the operator."""
        return self._line.do(routes.refunds(state=state, cursor=cursor, limit=limit))

    def refund_sent(self, refund_id: str, txid: str) -> wire.Refund:
        return self._line.do(routes.refund_sent(refund_id, txid))

    def rates(self) -> Sequence[wire.RateLine]:
        return self._line.do(routes.rates()).rates
