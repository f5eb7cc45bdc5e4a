"""`client.gift_cards`: buy, redeem and end gift cards, with asyncio. Work that is asked for is done here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.native import beside
from sandboxer.sdk.call import Call, new_idempotency_key
from sandboxer.sdk.calls import gift_cards as calls
from sandboxer.sdk.confirmation import MOST_PUZZLES, puzzle_in, work_for
from sandboxer.sdk.errors import ApiError
from sandboxer.wire import gift_cards as wire

T = TypeVar("T")


class AsyncGiftCards:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def pricing(self) -> wire.GiftPricing:
        return await self._line.send(calls.get_gift_pricing())

    async def create(
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
        call = calls.buy_gift_card(
            cents=cents,
            pay_with=pay_with,
            currency=currency,
            refund_address=refund_address,
            approval=approval or None,
            reason=reason,
            idempotency_key=None if anonymous else new_idempotency_key(),
        )
        # Its answer holds a secret and is not kept: a second try would be refused.
        return await self._line.send(call.repeatable(False).by_anybody(anonymous))

    async def get(self, card_id: str) -> wire.GiftCard:
        return await self._line.send(calls.get_gift_card(card_id))

    async def code(self, card_id: str, *, claim: str | None = None, again: bool = False) -> wire.ShownCode:
        """Shows the four words of a paid card, once; `again` makes new ones, and the old ones end."""
        call = calls.show_gift_code(card_id, claim=claim, again=again)
        return await self._line.send(call.by_anybody(claim is not None))

    async def balance(self, code: str) -> wire.CardBalance:
        return await self._working(lambda work: calls.get_gift_balance(code=code, work=work))

    async def redeem(
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
        # The same redemption, however often it is sent.
        the_same = request_id or new_idempotency_key()
        return await self._working(
            lambda work: calls.redeem_gift_card(
                code=code,
                request_id=the_same,
                account=account,
                tier=tier,
                months=months,
                cents=cents,
                work=work,
            ).by_anybody(anonymous)
        )

    async def redemption(self, redemption_id: str) -> wire.Redemption:
        return await self._line.send(calls.get_redemption(redemption_id))

    async def approve(self, link: str) -> wire.Redemption:
        """Approves a redemption by the link that asks for it."""
        return await self._line.send(calls.approve_redemption(_token(link)))

    async def deny(self, link: str) -> wire.Redemption:
        return await self._line.send(calls.deny_redemption(_token(link)))

    async def revoke(self, card_id: str, *, claim: str | None = None, reason: str = "asked") -> wire.GiftCard:
        call = calls.revoke_gift_card(card_id, claim=claim, reason=reason)
        return await self._line.send(call.by_anybody(claim is not None))

    async def refund(
        self,
        card_id: str,
        *,
        to: str = "sats",
        claim: str | None = None,
        account: str | None = None,
        address: str | None = None,
    ) -> wire.RefundedCard:
        """Gives back what is left: to an account's `sats`, or to a coin `address` less restocking."""
        call = calls.refund_gift_card(card_id, to=to, claim=claim, account=account, address=address)
        return await self._line.send(call.by_anybody(claim is not None))

    async def page(
        self, *, state: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> wire.GiftCardList:
        """Returns one page, newest first; for the operator."""
        return await self._line.send(calls.list_gift_cards(state=state, cursor=cursor, limit=limit))

    async def _working(self, call: Callable[[Mapping[str, str] | None], Call[T]]) -> T:
        work = None
        for _ in range(MOST_PUZZLES):
            try:
                return await self._line.send(call(work))
            except ApiError as error:
                if (puzzle := puzzle_in(error)) is None:
                    raise
                work = await beside(work_for, *puzzle)
        return await self._line.send(call(work))


def _token(link: str) -> str:
    """Finds the token in the whole link of a mail, or in its last part."""
    return link.rstrip("/").removesuffix("/approve").removesuffix("/deny").rpartition("/")[2]
