"""Money and accounts: what a holder reads and gives, what the operator does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxer.sdk.calls import Call, json_body, target
from sandboxer.sdk.routes.reading import content, model, nothing
from sandboxer.sdk.routes.sandboxes import STREAM_TIMEOUT_S
from sandboxer.wire import accounts as wire
from sandboxer.wire.pricing import Pricing, Quote


def me() -> Call[wire.Me]:
    return Call(method="GET", target="/v1/accounts/me", read=model(wire.Me))


def events(*, after: int, follow: bool) -> Call[None]:
    """A stream of server-sent events."""
    return Call(
        method="GET",
        target=target("/v1/accounts/me/events", query={"after": after, "follow": follow}),
        headers={"accept": "text/event-stream"},
        read=nothing,
        timeout_s=STREAM_TIMEOUT_S,
    )


def transfers(*, of: str | None, cursor: str | None, limit: int | None) -> Call[wire.TransferPage]:
    where = target("/v1/transfers", query={"of": of, "cursor": cursor, "limit": limit})
    return Call(method="GET", target=where, read=model(wire.TransferPage))


def statement(*, of: str | None) -> Call[bytes]:
    """All transfers as CSV, oldest first."""
    where = target("/v1/transfers", query={"of": of, "format": "csv"})
    return Call(method="GET", target=where, read=content, timeout_s=600.0)


def usage(*, of: str | None, since: str | None, until: str | None) -> Call[wire.UsageReport]:
    where = target("/v1/usage", query={"of": of, "since": since, "until": until})
    return Call(method="GET", target=where, read=model(wire.UsageReport))


def usage_segments(
    *, of: str | None, all_accounts: bool, after: int, limit: int | None
) -> Call[wire.UsageSegmentPage]:
    query = {"of": of, "all_accounts": all_accounts, "after": after, "limit": limit}
    where = target("/v1/usage/segments", query=query)
    return Call(method="GET", target=where, read=model(wire.UsageSegmentPage))


def send(to: str, sats: int, *, id: str, reason: str) -> Call[wire.Moved]:
    return _move("/v1/transfers", {"to": to, "sats": sats, "id": id, "reason": reason})


def adjust(account: str, sats: int, *, id: str, reason: str) -> Call[wire.Moved]:
    return _move(target("/v1/accounts/{}/adjust", account), {"sats": sats, "id": id, "reason": reason})


def pay_out(sats: int, *, id: str, reason: str) -> Call[wire.Moved]:
    return _move("/v1/payouts", {"sats": sats, "id": id, "reason": reason})


def create_account(*, id: str | None, name: str, reason: str) -> Call[wire.Account]:
    body, headers = json_body({"id": id, "name": name, "reason": reason})
    return Call(method="POST", target="/v1/accounts", body=body, headers=headers, read=model(wire.Account))


def accounts(*, after: str | None, limit: int | None) -> Call[wire.AccountPage]:
    where = target("/v1/accounts", query={"after": after, "limit": limit})
    return Call(method="GET", target=where, read=model(wire.AccountPage))


def account(account: str) -> Call[wire.AccountReport]:
    return Call(method="GET", target=target("/v1/accounts/{}", account), read=model(wire.AccountReport))


def change(account: str, word: str, *, reason: str) -> Call[wire.Account]:
    """`word` is suspend, reinstate or close."""
    body, headers = json_body({"reason": reason})
    where = target("/v1/accounts/{}/{}", account, word)
    return Call(method="POST", target=where, body=body, headers=headers, read=model(wire.Account))


def verify_ledger() -> Call[wire.LedgerProof]:
    return Call(method="GET", target="/v1/ledger/verify", read=model(wire.LedgerProof), timeout_s=600.0)


def verify_audit(*, anchor_seq: int | None, anchor_hash: str | None) -> Call[wire.AuditProof]:
    where = target("/v1/audit/verify", query={"anchor_seq": anchor_seq, "anchor_hash": anchor_hash})
    return Call(method="GET", target=where, read=model(wire.AuditProof), timeout_s=600.0)


def export_audit() -> Call[bytes]:
    return Call(method="GET", target="/v1/audit/export", read=content, timeout_s=600.0)


def pricing() -> Call[Pricing]:
    return Call(method="GET", target="/v1/pricing", read=model(Pricing))


def quote(wanted: Mapping[str, Any]) -> Call[Quote]:
    body, headers = json_body({name: value for name, value in wanted.items() if value is not None})
    return Call(method="POST", target="/v1/quotes", body=body, headers=headers, read=model(Quote))


def _move(where: str, wanted: Mapping[str, Any]) -> Call[wire.Moved]:
    body, headers = json_body(wanted)
    # The id makes the second the same as the first.
    return Call(
        method="POST",
        target=where,
        body=body,
        headers=headers,
        read=model(wire.Moved),
        is_repeatable=True,
    )
