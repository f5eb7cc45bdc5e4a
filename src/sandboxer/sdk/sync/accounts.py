"""`client.account` and `client.operator`: one's own money, and the operator's books, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandboxer.sdk.routes import accounts as routes
from sandboxer.sdk.routes.reading import parse
from sandboxer.sdk.sync.line import Line
from sandboxer.sdk.sync.streams import server_events
from sandboxer.wire import accounts as wire
from sandboxer.wire.events import Event
from sandboxer.wire.pricing import Pricing, Quote


class OwnAccount:
    def __init__(self, line: Line) -> None:
        self._line = line

    def me(self) -> wire.Me:
        return self._line.do(routes.me())

    def events(self, *, after: int = 0, follow: bool = True) -> Iterator[Event]:
        """What happened to the account since event `after` (low, dry, funded), then what happens."""
        for event in server_events(self._line, routes.events(after=after, follow=follow)):
            yield parse(Event, event.data)

    def transfers(
        self, *, of: str | None = None, cursor: str | None = None, limit: int | None = None
    ) -> wire.TransferPage:
        """One page, newest first; `of` another account is for the operator."""
        return self._line.do(routes.transfers(of=of, cursor=cursor, limit=limit))

    def statement(self, *, of: str | None = None) -> bytes:
        """All transfers as CSV, oldest first."""
        return self._line.do(routes.statement(of=of))

    def usage(
        self, *, of: str | None = None, since: str | None = None, until: str | None = None
    ) -> wire.UsageReport:
        return self._line.do(routes.usage(of=of, since=since, until=until))

    def usage_segments(
        self, *, of: str | None = None, all_accounts: bool = False, after: int = 0, limit: int | None = None
    ) -> wire.UsageSegmentPage:
        """What was used, each closed segment once; read on with `after=page.next_after`."""
        call = routes.usage_segments(of=of, all_accounts=all_accounts, after=after, limit=limit)
        return self._line.do(call)

    def send(self, to: str, sats: int, *, id: str, reason: str) -> wire.Moved:
        """Give sats to the account with this public id; the same id gives once."""
        return self._line.do(routes.send(to, sats, id=id, reason=reason))

    def pricing(self) -> Pricing:
        return self._line.do(routes.pricing())

    def quote(
        self,
        *,
        profile: str | None = None,
        resources: Mapping[str, float] | None = None,
        duration: str | None = None,
    ) -> Quote:
        """What a sandbox would cost; name its `id` as `quote_id` in one create or extend."""
        wanted = {"profile": profile, "resources": resources, "duration": duration}
        return self._line.do(routes.quote(wanted))


class Operator:
    def __init__(self, line: Line) -> None:
        self._line = line

    def accounts(self, *, after: str | None = None, limit: int | None = None) -> wire.AccountPage:
        return self._line.do(routes.accounts(after=after, limit=limit))

    def account(self, account: str) -> wire.AccountReport:
        return self._line.do(routes.account(account))

    def create_account(self, *, id: str | None = None, name: str = "", reason: str) -> wire.Account:
        return self._line.do(routes.create_account(id=id, name=name, reason=reason))

    def suspend(self, account: str, *, reason: str) -> wire.Account:
        return self._line.do(routes.change(account, "suspend", reason=reason))

    def reinstate(self, account: str, *, reason: str) -> wire.Account:
        return self._line.do(routes.change(account, "reinstate", reason=reason))

    def close(self, account: str, *, reason: str) -> wire.Account:
        return self._line.do(routes.change(account, "close", reason=reason))

    def adjust(self, account: str, sats: int, *, id: str, reason: str) -> wire.Moved:
        """Give (above zero) or take sats; the same id adjusts once."""
        return self._line.do(routes.adjust(account, sats, id=id, reason=reason))

    def pay_out(self, sats: int, *, id: str, reason: str) -> wire.Moved:
        return self._line.do(routes.pay_out(sats, id=id, reason=reason))

    def verify_ledger(self) -> wire.LedgerProof:
        return self._line.do(routes.verify_ledger())

    def verify_audit(
        self, *, anchor_seq: int | None = None, anchor_hash: str | None = None
    ) -> wire.AuditProof:
        return self._line.do(routes.verify_audit(anchor_seq=anchor_seq, anchor_hash=anchor_hash))

    def export_audit(self) -> bytes:
        """One JSON object a line."""
        return self._line.do(routes.export_audit())
