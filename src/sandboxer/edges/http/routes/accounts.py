"""Routes of an account as its holder sees it: what it has, what it moved, what it used.

Usage is read with a cursor for external billing: each closed segment once, in the order in which they were
closed.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime, timedelta

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sandboxer.accounts import records, use_cases
from sandboxer.accounts.authority import scopes_to_json
from sandboxer.accounts.caps import as_json as caps_json
from sandboxer.accounts.limits import requests_per_minute
from sandboxer.accounts.use_cases import give_sats
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.requests import caller, moment, platform_of, require_owner
from sandboxer.kernel.errors import Forbidden, InvalidRequest
from sandboxer.money import statements, usage_feed
from sandboxer.money.amounts import NSATS_PER_MSAT
from sandboxer.money.statements import AccountView
from sandboxer.wire import accounts as wire
from sandboxer.wire.accounts import Me, Moved, SendSats
from sandboxer.wire.operations import accounts as operations
from sandboxer.wire.operations.accounts import ListTransfersQuery, ListUsageSegmentsQuery, ShowUsageQuery
from sandboxer.wire.operations.declaration import NoParameters

USAGE_COLUMNS = ("subject", "use", "began_at", "ended_at", "seconds", "msats")
NEXT = "x-next-after"


async def me(asked: Asked[NoParameters, NoParameters, None]) -> Me:
    platform, who = asked.platform, asked.caller
    authority = await platform.authorities.of(who)
    now = platform.clock.now()
    view = await platform.store.read(lambda conn: statements.account_view(conn, who.account, now=now))
    sender = authority.sender(who, now=now)
    return wire.Me(
        account=account(authority.account, now=now),
        money=balance(view),
        ancestry=list(authority.ancestry),
        scopes=scopes_to_json(authority.scopes),
        depth=authority.depth,
        slots=authority.slots,
        expires_at=authority.expires_at,
        requests_per_minute=requests_per_minute(
            sender.tier, is_owner=sender.is_owner, policy=platform.limits
        ),
    )


async def transfers(asked: Asked[NoParameters, ListTransfersQuery, None]) -> Response:
    platform = asked.platform
    account_id = await account_of(asked.request, asked.query.of)
    if asked.query.format == "csv":
        return StreamingResponse(statements.export_csv(platform.store, account_id), media_type="text/csv")
    page = await platform.store.read(
        lambda conn: statements.transfers_page(
            conn, account_id, cursor=asked.query.cursor, limit=asked.query.limit
        )
    )
    shown = [wire.TransferLine.model_validate(statements.as_json(line)) for line in page.lines]
    return json_response(wire.TransferPage(transfers=shown, next_cursor=page.next_cursor))


async def send(asked: Asked[NoParameters, NoParameters, SendSats]) -> Moved:
    platform, who = asked.platform, asked.caller
    now = platform.clock.now()
    is_new = await platform.store.write(
        lambda conn: give_sats(
            conn,
            who.account,
            asked.body.to,
            asked.body.sats,
            id=asked.body.id,
            reason=asked.body.reason,
            key=who.public_key,
            now=now,
        )
    )
    return wire.Moved(id=asked.body.id, sats=asked.body.sats, is_new=is_new)


async def usage(asked: Asked[NoParameters, ShowUsageQuery, None]) -> Response:
    platform = asked.platform
    account_id = await account_of(asked.request, asked.query.of)
    now = platform.clock.now()
    begin, end = _span(asked.query.since, asked.query.until, now)
    lines = await platform.store.read(
        lambda conn: statements.usage(conn, account_id, since=begin, until=end, now=now)
    )
    shown = [
        wire.UsageLine(
            subject=line.subject,
            use=line.use.value,
            began_at=line.began_at,
            ended_at=line.ended_at,
            seconds=line.seconds_us / 1_000_000,
            msats=line.msats,
        )
        for line in lines
    ]
    if asked.query.format == "csv":
        return Response(_csv(shown), media_type="text/csv")
    total = sum(line.nsats for line in lines) // NSATS_PER_MSAT
    report = wire.UsageReport(account=account_id, since=begin, until=end, usage=shown, total_msats=total)
    return json_response(report)


def account(record: records.Account, *, now: datetime) -> wire.Account:
    return wire.Account(
        id=record.id,
        public_id=record.public_id,
        kind=record.kind.value,
        name=record.name,
        status=record.status.value,
        tier=record.tier_at(now),
        entitled_until=record.entitled_until,
        caps=caps_json(record.caps),
        created_at=record.created_at,
    )


def balance(view: AccountView) -> wire.Balance:
    return wire.Balance(
        balance=view.balance,
        held=view.held,
        reserved=view.reserved,
        available=view.available,
        debt=view.debt,
        incoming=view.incoming,
        rate_msats=view.rate_msats,
        standing=view.standing.value,
        dry_at=view.dry_at,
        reap_at=view.reap_at,
    )


async def account_of(request: Request, of: str | None) -> str:
    """Returns the account that is asked about; only the owner may ask about another than its own."""
    platform, who = platform_of(request), caller(request)
    if of is None or of == who.account:
        await platform.authorities.of(who)
        return who.account
    if not who.is_owner:
        raise Forbidden(why="you can see your own account only")
    return (await use_cases.get(platform.store, of)).id


def _span(since: str | None, until: str | None, now: datetime) -> tuple[datetime, datetime]:
    end = moment(until, field="until") or now
    begin = moment(since, field="since") or min(now, end) - timedelta(days=30)
    if begin > end:
        raise InvalidRequest(field="since", why="it is after until")
    return begin, end


def _csv(lines: list[wire.UsageLine]) -> str:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(USAGE_COLUMNS)
    for line in lines:
        values = line.model_dump(mode="json")
        writer.writerow([values[name] for name in USAGE_COLUMNS])
    return text.getvalue()


async def segments(asked: Asked[NoParameters, ListUsageSegmentsQuery, None]) -> Response:
    if asked.query.all_accounts:
        require_owner(asked.request)
        if asked.query.of is not None:
            raise InvalidRequest(field="of", why="it contradicts all_accounts")
    owner = None if asked.query.all_accounts else await account_of(asked.request, asked.query.of)
    begin, end = moment(asked.query.since, field="since"), moment(asked.query.until, field="until")
    found = await asked.platform.store.read(
        lambda conn: usage_feed.segments_page(
            conn, owner=owner, after=asked.query.after, limit=asked.query.limit, since=begin, until=end
        )
    )
    following = found[-1].seq if found else asked.query.after
    lines = [usage_feed.as_json(one) for one in found]
    if asked.query.format == "csv":
        return Response(_segments_csv(lines), media_type="text/csv", headers={NEXT: str(following)})
    shown = [wire.UsageSegment.model_validate(line) for line in lines]
    return json_response(wire.UsageSegmentPage(segments=shown, next_after=following))


def _segments_csv(lines: list[dict[str, object]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(wire.UsageSegment.model_fields))
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


BINDINGS: tuple[Binding, ...] = (
    bind(operations.SHOW_ME, me),
    bind(operations.LIST_TRANSFERS, transfers),
    bind(operations.SEND_SATS, send),
    bind(operations.SHOW_USAGE, usage),
    bind(operations.LIST_USAGE_SEGMENTS, segments),
)
