"""`client.account` and `client.operator`: one's own money, and the operator's books, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.aio.streams import server_events
from sandboxer.sdk.routes import accounts as routes
from sandboxer.sdk.routes.reading import parse
from sandboxer.wire import accounts as wire
from sandboxer.wire.events import Event
from sandboxer.wire.pricing import Pricing, Quote


class AsyncOwnAccount:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def me(self) -> wire.Me:
        return await self._line.do(routes.me())

    async def events(self, *, after: int = 0, follow: bool = True) -> AsyncIterator[Event]:
        """What happened to the account since event `after` (low, dry, funded), then what happens."""
        async for event in server_events(self._line, routes.events(after=after, follow=follow)):
            yield parse(Event, event.data)

    async def transfers(
        self, *, of: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> wire.TransferPage:
        """One page, newest first; `of` another account is for the operator."""
        return await self._line.do(routes.transfers(of=of, cursor=cursor, limit=limit))

    async def statement(self, *, of: str | None = None) -> bytes:
        """All transfers as CSV, oldest first."""
        return await self._line.do(routes.statement(of=of))

    async def usage(
        self, *, of: str | None = None, since: str | None = None, until: str | None = None
    ) -> wire.UsageReport:
        return await self._line.do(routes.usage(of=of, since=since, until=until))

    async def usage_segments(
        self, *, of: str | None = None, all_accounts: bool = False, after: int = 0, limit: int | None = None
    ) -> wire.UsageSegmentPage:
        """What was used, each closed segment once; read on with `after=page.next_after`."""
        call = routes.usage_segments(of=of, all_accounts=all_accounts, after=after, limit=limit)
        return await self._line.do(call)

    async def send(self, to: str, sats: int, *, id: str, reason: str) -> wire.Moved:
        """Give sats to the account with this public id; the same id gives once."""
        return await self._line.do(routes.send(to, sats, id=id, reason=reason))

    async def pricing(self) -> Pricing:
        return await self._line.do(routes.pricing())

    async def quote(
        self,
        *,
        profile: str | None = None,
        resources: Mapping[str, float] | None = None,
        duration: str | None = None,
    ) -> Quote:
        """What a sandbox would cost; name its `id` as `quote_id` in one create or extend."""
        wanted = {"profile": profile, "resources": resources, "duration": duration}
        return await self._line.do(routes.quote(wanted))


class AsyncOperator:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def accounts(self, *, after: str | None = None, limit: int | None = None) -> wire.AccountPage:
        return await self._line.do(routes.accounts(after=after, limit=limit))

    async def account(self, account: str) -> wire.AccountReport:
        return await self._line.do(routes.account(account))

    async def create_account(self, *, id: str | None = None, name: str = "", reason: str) -> wire.Account:
        return await self._line.do(routes.create_account(id=id, name=name, reason=reason))

    async def suspend(self, account: str, *, reason: str) -> wire.Account:
        return await self._line.do(routes.change(account, "suspend", reason=reason))

    async def reinstate(self, account: str, *, reason: str) -> wire.Account:
        return await self._line.do(routes.change(account, "reinstate", reason=reason))

    async def close(self, account: str, *, reason: str) -> wire.Account:
        return await self._line.do(routes.change(account, "close", reason=reason))

    async def adjust(self, account: str, sats: int, *, id: str, reason: str) -> wire.Moved:
        """Give (above zero) or take sats; the same id adjusts once."""
        return await self._line.do(routes.adjust(account, sats, id=id, reason=reason))

    async def pay_out(self, sats: int, *, id: str, reason: str) -> wire.Moved:
        return await self._line.do(routes.pay_out(sats, id=id, reason=reason))

    async def verify_ledger(self) -> wire.LedgerProof:
        return await self._line.do(routes.verify_ledger())

    async def verify_audit(
        self, *, anchor_seq: int | None = None, anchor_hash: str | None = None
    ) -> wire.AuditProof:
        return await self._line.do(routes.verify_audit(anchor_seq=anchor_seq, anchor_hash=anchor_hash))

    async def export_audit(self) -> bytes:
        """One JSON object a line."""
        return await self._line.do(routes.export_audit())
