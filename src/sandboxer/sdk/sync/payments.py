"""`client.payments`: pay with a wallet, look at what was paid, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sandboxer.sdk.routes import payments as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import payments as wire


class Payments:
    def __init__(self, line: Line) -> None:
        self._line = line

    def top_up(self, sats: int, *, account: str | None = None) -> wire.Bought:
        """Credit for one's own account, or for anybody's by public id; the client's wallet pays."""
        return self._line.do(routes.top_up(sats, account=account))

    def buy_key(self, tier: int, months: int = 1) -> wire.BoughtKey:
        """A tier for some months; a wallet without a key gets one, and the client signs with it from now."""
        return self._line.do(routes.buy_key(tier, months))

    def get(self, payment_id: str) -> wire.Payment:
        return self._line.do(routes.get(payment_id))

    def list(self, *, limit: int | None = None) -> Iterator[wire.Payment]:
        """All of one's own, newest first, page by page."""
        cursor: str | None = None
        while True:
            page = self._line.do(routes.page(cursor=cursor, limit=limit))
            yield from page.payments
            cursor = page.next_cursor
            if cursor is None:
                return

    def goods(self) -> Sequence[wire.Good]:
        """What is for sale, with offers at the least price."""
        return self._line.do(routes.goods()).items
