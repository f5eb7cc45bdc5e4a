"""`client.gift_cards`: buy, redeem and end gift cards, blocking. Work that is asked for is done here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from sandboxer.sdk.calls import Call
from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.routes import gift_cards as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import gift_cards as wire

T = TypeVar("T")


class GiftCards:
    def __init__(self, line: Line) -> None:
        self._line = line

    def pricing(self) -> wire.GiftPricing:
        return self._line.do(routes.pricing())

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
    ) -> wire.NewGiftCard:
        """Keep its `claim`. `anonymous`: bought by nobody in particular, by invoice only."""
        asks = {"email": approval_email, "webhook": approval_webhook}
        approval = {name: value for name, value in asks.items() if value is not None}
        wanted = {"cents": cents, "pay_with": pay_with, "currency": currency, "reason": reason}
        more = {"refund_address": refund_address, "approval": approval or None}
        return self._line.do(routes.create({**wanted, **more}, is_signed=not anonymous))

    def get(self, card_id: str) -> wire.GiftCard:
        return self._line.do(routes.get(card_id))

    def code(self, card_id: str, *, claim: str | None = None, again: bool = False) -> wire.ShownCode:
        """The four words of a paid card, shown once; `again` makes new ones, and the old ones end."""
        return self._line.do(routes.code(card_id, claim=claim, again=again))

    def balance(self, code: str) -> wire.CardBalance:
        return self._working(lambda work: routes.balance(code, work))

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
    ) -> wire.NewRedemption:
        """For one's own account, another's by its public id, or (`anonymous`) a new one with a key."""
        wanted = {"code": code, "request_id": request_id or routes.new_request_id(), "account": account}
        buys = {"tier": tier, "months": months, "cents": cents}
        return self._working(lambda work: routes.redeem({**wanted, **buys}, work, is_signed=not anonymous))

    def redemption(self, redemption_id: str) -> wire.Redemption:
        return self._line.do(routes.redemption(redemption_id))

    def approve(self, link: str) -> wire.Redemption:
        """By the link that asks for it."""
        return self._line.do(routes.answer(link, "approve"))

    def deny(self, link: str) -> wire.Redemption:
        return self._line.do(routes.answer(link, "deny"))

    def revoke(self, card_id: str, *, claim: str | None = None, reason: str = "asked") -> wire.GiftCard:
        return self._line.do(routes.revoke(card_id, claim=claim, reason=reason))

    def refund(
        self,
        card_id: str,
        *,
        to: str = "sats",
        claim: str | None = None,
        account: str | None = None,
        address: str | None = None,
    ) -> wire.RefundedCard:
        """What is left: to an account's `sats`, or to a coin `address` less restocking."""
        wanted = {"to": to, "claim": claim, "account": account, "address": address}
        return self._line.do(routes.refund(card_id, wanted))

    def page(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> wire.GiftCardList:
        """One page, newest first; for the operator."""
        return self._line.do(routes.page(state=state, cursor=cursor, limit=limit))

    def _working(self, call: Callable[[Mapping[str, str] | None], Call[T]]) -> T:
        work = None
        for _ in range(routes.MOST_PUZZLES):
            try:
                return self._line.do(call(work))
            except ApiError as error:
                if (puzzle := routes.puzzle_in(error)) is None:
                    raise
                work = routes.work_for(*puzzle)
        return self._line.do(call(work))
