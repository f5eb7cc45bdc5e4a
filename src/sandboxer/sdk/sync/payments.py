# Written by scripts/generate-sync from sdk/aio/payments.py. Do not edit.
"""`client.payments`: pay with a wallet, look at what was paid, blocking.

`client.invoices`: pay in coins. Asking and looking need no key of one's own. `client.gift_cards`: buy, redeem
and end gift cards. Work that is asked for is done here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

from sandboxer.sdk.call import Call, found_at, new_idempotency_key, parse
from sandboxer.sdk.calls import gift_cards, invoices, keys, payments
from sandboxer.sdk.confirmation import MOST_PUZZLES, puzzle_in, work_for
from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.sync.line import Noun, items, server_events
from sandboxer.sdk.sync.native import beside

if TYPE_CHECKING:
    from sandboxer.sdk import models

T = TypeVar("T")


class Payments(Noun):
    """A wallet pays by x402, and this says what it paid."""

    def top_up(self, sats: int, *, account: str | None = None) -> models.Bought:
        """Buys credit for one's own account, or for anybody's by public id; the client's wallet pays."""
        return self._line.send(
            payments.top_up(sats=sats, account=account, idempotency_key=new_idempotency_key())
        )

    def buy_key(self, tier: int, months: int = 1) -> models.BoughtKey:
        """Buys a tier for some months; a wallet without a key gets one, which signs from now on."""
        return self._line.send(
            payments.buy_key(tier=tier, months=months, idempotency_key=new_idempotency_key())
        )

    def get(self, payment_id: str) -> models.Payment:
        """Returns one payment."""
        return self._line.send(payments.get_payment(payment_id))

    def list(self, *, limit: int | None = None) -> Iterator[models.Payment]:
        """Yields all of one's own, newest first, page by page."""
        return items(
            self._line,
            lambda cursor: payments.list_payments(cursor=cursor, limit=limit),
            lambda page: page.payments,
        )

    def goods(self) -> Sequence[models.Good]:
        """Lists what is for sale, with offers at the least price."""
        return self._line.send(payments.list_goods()).items


class Invoices(Noun):
    """An invoice asks for coins at an address of its own, and is paid from any wallet."""

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
    ) -> models.NewInvoice:
        """Asks for a tier and months, or for sats; `account` is a public id, without it a new one is made.

        Repeated with the same key it is the same invoice; for a new account, a key of 22 characters or more.
        """
        return self._line.send(
            invoices.create_invoice(
                currency=currency,
                tier=tier,
                months=months,
                sats=sats,
                account=account,
                refund_address=refund_address,
                idempotency_key=idempotency_key,
            )
        )

    def get(self, invoice_id: str) -> models.Invoice:
        """Returns an invoice as it stands."""
        return self._line.send(invoices.get_invoice(invoice_id))

    def qr_svg(self, invoice_id: str) -> bytes:
        """Returns the picture that a wallet scans."""
        return self._line.send(invoices.draw_invoice(invoice_id))

    def follow(self, invoice_id: str) -> Iterator[models.Invoice]:
        """Yields the invoice as it is, then after each change, until it is settled."""
        for event in server_events(self._line, invoices.follow_invoice(invoice_id)):
            yield parse(found_at("sandboxer.wire.invoices:Invoice"), event.data)

    def claim_key(self, public_key: str, claim: str) -> models.NewKey:
        """Shows the secret of the key that an invoice bought, once."""
        return self._line.send(keys.reveal_key(public_key, claim=claim))

    def page(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> models.InvoiceList:
        """Returns one page, newest first; for the operator."""
        return self._line.send(invoices.list_invoices(state=state, cursor=cursor, limit=limit))

    def look(self, invoice_id: str) -> models.Invoice:
        """Has its address looked at now; for the operator."""
        return self._line.send(invoices.look_at_invoice(invoice_id))

    def refunds(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> models.RefundList:
        """Returns one page, oldest first; for the operator."""
        return self._line.send(invoices.list_refunds(state=state, cursor=cursor, limit=limit))

    def refund_sent(self, refund_id: str, txid: str) -> models.Refund:
        """Notes the transaction that sent a refund; for the operator."""
        return self._line.send(invoices.mark_refund_sent(refund_id, txid=txid))

    def rates(self) -> Sequence[models.RateLine]:
        """Returns what one unit of each coin is worth in US dollars now."""
        return self._line.send(payments.list_rates()).rates


class GiftCards(Noun):
    """A gift card is four words that are worth sats."""

    def pricing(self) -> models.GiftPricing:
        """Returns what cards may be worth, and how they are paid for and redeemed."""
        return self._line.send(gift_cards.get_gift_pricing())

    def create(
        self,
        cents: int,
        *,
        pay_with: str = "invoice",
        currency: str | None = None,
        refund_address: str | None = None,
        approval_email: str | None = None,
        approval_webhook: str | None = None,
        reason: str | None = None,
        anonymous: bool = False,
    ) -> models.NewGiftCard:
        """Buys a card; keep its `claim`. `anonymous`: bought by nobody in particular, by invoice only."""
        asks = {"email": approval_email, "webhook": approval_webhook}
        approval = {name: value for name, value in asks.items() if value is not None}
        call = gift_cards.buy_gift_card(
            cents=cents,
            pay_with=pay_with,
            currency=currency,
            refund_address=refund_address,
            approval=approval or None,
            reason=reason,
            idempotency_key=None if anonymous else new_idempotency_key(),
        )
        # Its answer holds a secret and is not kept: a second try would be refused.
        return self._line.send(call.repeatable(False).by_anybody(anonymous))

    def get(self, card_id: str) -> models.GiftCard:
        """Returns one card, without its words."""
        return self._line.send(gift_cards.get_gift_card(card_id))

    def code(self, card_id: str, *, claim: str | None = None, again: bool = False) -> models.ShownCode:
        """Shows the four words of a paid card, once; `again` makes new ones, and the old ones end."""
        call = gift_cards.show_gift_code(card_id, claim=claim, again=again)
        return self._line.send(call.by_anybody(claim is not None))

    def balance(self, code: str) -> models.CardBalance:
        """Says what a card's words are still worth."""
        return self._working(lambda work: gift_cards.get_gift_balance(code=code, work=work))

    def redeem(
        self,
        code: str,
        *,
        tier: int | None = None,
        months: int | None = None,
        cents: int | None = None,
        account: str | None = None,
        anonymous: bool = False,
        request_id: str | None = None,
    ) -> models.NewRedemption:
        """Credits one's own account, another's by its public id, or (`anonymous`) a new one with a key."""
        # The same redemption, however often it is sent.
        the_same = request_id or new_idempotency_key()
        return self._working(
            lambda work: gift_cards.redeem_gift_card(
                code=code,
                request_id=the_same,
                account=account,
                tier=tier,
                months=months,
                cents=cents,
                work=work,
            ).by_anybody(anonymous)
        )

    def redemption(self, redemption_id: str) -> models.Redemption:
        """Returns one redemption as it stands."""
        return self._line.send(gift_cards.get_redemption(redemption_id))

    def approve(self, link: str) -> models.Redemption:
        """Approves a redemption by the link that asks for it."""
        return self._line.send(gift_cards.approve_redemption(_token(link)))

    def deny(self, link: str) -> models.Redemption:
        """Refuses a redemption by the link that asks for it."""
        return self._line.send(gift_cards.deny_redemption(_token(link)))

    def revoke(self, card_id: str, *, claim: str | None = None, reason: str = "asked") -> models.GiftCard:
        """Ends a card, so that nobody redeems it any more."""
        call = gift_cards.revoke_gift_card(card_id, claim=claim, reason=reason)
        return self._line.send(call.by_anybody(claim is not None))

    def refund(
        self,
        card_id: str,
        *,
        to: str = "sats",
        claim: str | None = None,
        account: str | None = None,
        address: str | None = None,
    ) -> models.RefundedCard:
        """Gives back what is left: to an account's `sats`, or to a coin `address` less restocking."""
        call = gift_cards.refund_gift_card(card_id, to=to, claim=claim, account=account, address=address)
        return self._line.send(call.by_anybody(claim is not None))

    def page(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> models.GiftCardList:
        """Returns one page, newest first; for the operator."""
        return self._line.send(gift_cards.list_gift_cards(state=state, cursor=cursor, limit=limit))

    def _working(self, call: Callable[[Mapping[str, str] | None], Call[T]]) -> T:
        work = None
        for _ in range(MOST_PUZZLES):
            try:
                return self._line.send(call(work))
            except ApiError as error:
                if (puzzle := puzzle_in(error)) is None:
                    raise
                work = beside(work_for, *puzzle)
        return self._line.send(call(work))


def _token(link: str) -> str:
    """Finds the token in the whole link of a mail, or in its last part."""
    return link.rstrip("/").removesuffix("/approve").removesuffix("/deny").rpartition("/")[2]
