# Written by scripts/generate-calls from wire/operations. Do not edit.
"""The calls on accounts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxer.sdk.call import EVENT_STREAM, NOTHING, STREAM_TIMEOUT_S, Call, headers_of, json_body, target_of

if TYPE_CHECKING:
    from sandboxer.wire.accounts import (
        Me,
        Moved,
        TransferPage,
        UsageOfSandboxesPage,
        UsageReport,
        UsageSegmentPage,
    )


def follow_account_events(
    *, after: int | None = None, follow: bool | None = None, last_event_id: int | None = None
) -> Call[None]:
    """Follow what happens to this account: its balance is low, used up, filled; what it may do changes."""
    return Call(
        operation="followAccountEvents",
        method="GET",
        target=target_of("/v1/accounts/me/events", after=after, follow=follow),
        answer=NOTHING,
        headers=headers_of(accept=EVENT_STREAM, last_event_id=last_event_id),
        timeout_s=STREAM_TIMEOUT_S,
    )


def show_me() -> Call[Me]:
    """Show this account: balance, tier, scopes, limits."""
    return Call(
        operation="showMe",
        method="GET",
        target="/v1/accounts/me",
        answer="sandboxer.wire.accounts:Me",
    )


def list_transfers(
    *, of: str | None = None, cursor: str | None = None, limit: int | None = None, format: str | None = None
) -> Call[TransferPage]:
    """List transfers, newest first; format=csv exports all of them, oldest first."""
    return Call(
        operation="listTransfers",
        method="GET",
        target=target_of("/v1/transfers", of=of, cursor=cursor, limit=limit, format=format),
        answer="sandboxer.wire.accounts:TransferPage",
    )


def send_sats(*, to: str, sats: int, id: str, reason: str) -> Call[Moved]:
    """Give sats to another account by its public id; the same id gives once."""
    return Call(
        operation="sendSats",
        method="POST",
        target="/v1/transfers",
        answer="sandboxer.wire.accounts:Moved",
        body=json_body({"to": to, "sats": sats, "id": id, "reason": reason}),
        headers=headers_of(content_type="application/json"),
        is_repeatable=True,
    )


def show_usage(
    *, of: str | None = None, since: str | None = None, until: str | None = None, format: str | None = None
) -> Call[UsageReport]:
    """Show what was used between two moments, for outside billing."""
    return Call(
        operation="showUsage",
        method="GET",
        target=target_of("/v1/usage", of=of, since=since, until=until, format=format),
        answer="sandboxer.wire.accounts:UsageReport",
    )


def list_usage_segments(
    *,
    of: str | None = None,
    all_accounts: bool | None = None,
    after: int | None = None,
    limit: int | None = None,
    since: str | None = None,
    until: str | None = None,
    format: str | None = None,
) -> Call[UsageSegmentPage]:
    """List what was used, segment by segment, after a cursor; for outside billing."""
    return Call(
        operation="listUsageSegments",
        method="GET",
        target=target_of(
            "/v1/usage/segments",
            of=of,
            all_accounts=all_accounts,
            after=after,
            limit=limit,
            since=since,
            until=until,
            format=format,
        ),
        answer="sandboxer.wire.accounts:UsageSegmentPage",
    )


def list_usage_of_sandboxes(
    *,
    of: str | None = None,
    all_accounts: bool | None = None,
    after: int | None = None,
    limit: int | None = None,
) -> Call[UsageOfSandboxesPage]:
    """List what each ended sandbox cost in all, once, after a cursor; as a fin-hub is told."""
    return Call(
        operation="listUsageOfSandboxes",
        method="GET",
        target=target_of("/v1/usage/sandboxes", of=of, all_accounts=all_accounts, after=after, limit=limit),
        answer="sandboxer.wire.accounts:UsageOfSandboxesPage",
    )
