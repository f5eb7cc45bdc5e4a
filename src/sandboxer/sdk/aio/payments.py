"""`client.payments`: pay with a wallet, look at what was paid, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import payments as routes
from sandboxer.wire import payments as wire


class AsyncPayments:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def top_up(self, sats: int, *, account: str | None = None) -> wire.Bought:
        """Credit for one's own account, or for anybody's by public id; the client's wallet pays."""
        return await self._line.do(routes.top_up(sats, account=account))

    async def buy_key(self, tier: int, months: int = 1) -> wire.BoughtKey:
        """A tier for some months; a wallet without a key gets one, and the client signs with it from now."""
        return await self._line.do(routes.buy_key(tier, months))

    async def get(self, payment_id: str) -> wire.Payment:
        return await self._line.do(routes.get(payment_id))

    async def list(self, *, limit: int | None = None) -> AsyncIterator[wire.Payment]:
        """All of one's own, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = await self._line.do(routes.page(cursor=cursor, limit=limit))
            for payment in page.payments:
                yield payment
            cursor = page.next_cursor
            if cursor is None:
                return

    async def goods(self) -> Sequence[wire.Good]:
        """What is for sale, with offers at the least price."""
        return (await self._line.do(routes.goods())).items
