"""Routes of an account as its holder sees it: what it has, what it moved, what it used; to sign in with a
wallet, and to manage the account's wallets.

Usage is read with a cursor for external billing: each closed segment once, in the order in which they were
closed.
"""

from __future__ import annotations

import csv
import io
from datetime import datetime, timedelta
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from sandboxer.accounts import records, use_cases
from sandboxer.accounts.authority import scopes_to_json
from sandboxer.accounts.caps import as_json as caps_json
from sandboxer.accounts.limits import network_around, requests_per_minute
from sandboxer.accounts.revocation import CutKeys
from sandboxer.accounts.use_cases import give_sats
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.authentication import address_of
from sandboxer.edges.http.binding import Asked, AskedBody, AskedQuery, bind
from sandboxer.edges.http.demands import confirm_new_factor
from sandboxer.edges.http.requests import caller, moment, platform_of, require_owner
from sandboxer.identity.sessions.tokens import session_token
from sandboxer.kernel.errors import Forbidden, InvalidRequest, NotAvailable
from sandboxer.money import statements, usage_feed
from sandboxer.money.amounts import NSATS_PER_MSAT
from sandboxer.sandboxes.hub_feeds import FinHubFeed
from sandboxer.wire import accounts as wire
from sandboxer.wire import auth
from sandboxer.wire.operations import accounts as account_operations
from sandboxer.wire.operations import auth as operations

NEXT = "x-next-after"


async def me(asked: Asked) -> wire.Me:
    platform, who = asked.platform, asked.caller
    authority = await platform.authorities.of(who)
    now = platform.clock.now()
    view = await platform.store.read(lambda conn: statements.account_view(conn, who.account, now=now))
    sender = authority.sender(who, now=now)
    return from_record(
        wire.Me,
        authority,
        account=account(authority.account, now=now),
        money=from_record(wire.Balance, view),
        ancestry=list(authority.ancestry),
        scopes=scopes_to_json(authority.scopes),
        depth=authority.depth_left(now=now, policy=platform.limits),
        requests_per_minute=requests_per_minute(
            sender.tier, is_owner=sender.is_owner, policy=platform.limits
        ),
    )


async def transfers(asked: AskedQuery[account_operations.ListTransfersQuery]) -> Response:
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


async def send(asked: AskedBody[wire.SendSats]) -> wire.Moved:
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


async def usage(asked: AskedQuery[account_operations.ShowUsageQuery]) -> Response:
    platform = asked.platform
    account_id = await account_of(asked.request, asked.query.of)
    now = platform.clock.now()
    begin, end = _span(asked.query.since, asked.query.until, now)
    lines = await platform.store.read(
        lambda conn: statements.usage(conn, account_id, since=begin, until=end, now=now)
    )
    shown = [from_record(wire.UsageLine, line, seconds=line.seconds_us / 1_000_000) for line in lines]
    if asked.query.format == "csv":
        text = _csv(wire.UsageLine, [line.model_dump(mode="json") for line in shown])
        return Response(text, media_type="text/csv")
    total = sum(line.nsats for line in lines) // NSATS_PER_MSAT
    report = wire.UsageReport(account=account_id, since=begin, until=end, usage=shown, total_msats=total)
    return json_response(report)


def account(record: records.Account, *, now: datetime) -> wire.Account:
    return from_record(wire.Account, record, tier=record.tier_at(now), caps=caps_json(record.caps))


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


def _csv(model: type[BaseModel], lines: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(model.model_fields))
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


async def segments(asked: AskedQuery[account_operations.ListUsageSegmentsQuery]) -> Response:
    owner = await _asked_about(asked.request, asked.query.of, all_accounts=asked.query.all_accounts)
    begin, end = moment(asked.query.since, field="since"), moment(asked.query.until, field="until")
    found = await asked.platform.store.read(
        lambda conn: usage_feed.segments_page(
            conn, owner=owner, after=asked.query.after, limit=asked.query.limit, since=begin, until=end
        )
    )
    following = found[-1].seq if found else asked.query.after
    lines = [usage_feed.as_json(one) for one in found]
    if asked.query.format == "csv":
        text = _csv(wire.UsageSegment, lines)
        return Response(text, media_type="text/csv", headers={NEXT: str(following)})
    shown = [wire.UsageSegment.model_validate(line) for line in lines]
    return json_response(wire.UsageSegmentPage(segments=shown, next_after=following))


async def usage_of_sandboxes(
    asked: AskedQuery[account_operations.ListUsageOfSandboxesQuery],
) -> wire.UsageOfSandboxesPage:
    platform, query = asked.platform, asked.query
    owner = await _asked_about(asked.request, query.of, all_accounts=query.all_accounts)
    feed, now = FinHubFeed(platform.settings.fixed_usd_per_btc), platform.clock.now()
    found = await platform.store.read(
        lambda conn: feed.page(conn, query.after, query.limit, owner=owner, now=now)
    )
    lines = [wire.UsageOfSandbox.model_validate({"id": one.id, **one.data}) for one in found]
    return wire.UsageOfSandboxesPage(sandboxes=lines, next_after=found[-1].position if found else query.after)


async def _asked_about(request: Request, of: str | None, *, all_accounts: bool) -> str | None:
    """Returns the account that is asked about; None, to the owner, for every one."""
    if not all_accounts:
        return await account_of(request, of)
    require_owner(request)
    if of is not None:
        raise InvalidRequest(field="of", why="it contradicts all_accounts")
    return None


async def challenge_wallet(asked: Asked) -> auth.SessionChallenge:
    made = await asked.platform.wallets.sessions.challenge()
    return from_record(auth.SessionChallenge, made)


async def open_session(asked: AskedBody[auth.OpenSession]) -> auth.Session:
    opened = await asked.platform.wallets.sessions.open_session(
        asked.body.nonce, asked.body.signature, asked.body.address, network=_network(asked.request)
    )
    return from_record(auth.Session, opened)


async def close_session(asked: Asked) -> None:
    if (token := session_token(asked.request.scope["headers"])) is None:
        raise InvalidRequest(field="Authorization", why="this request came without a session's token")
    await asked.platform.wallets.sessions.revoke(token)


async def end_sessions(asked: AskedQuery[operations.EndSessionsQuery]) -> auth.SessionsEnded:
    ended = await asked.platform.wallets.sessions.end_all(
        asked.caller.account, address=asked.query.address, actor=asked.actor
    )
    return auth.SessionsEnded(ended=ended)


async def siwx_offer(asked: Asked) -> auth.SiwxOffer:
    return auth.SiwxOffer.model_validate(asked.platform.wallets.siwx.offer())


async def sign_in(asked: AskedBody[auth.SignIn]) -> auth.Session:
    siwx, network = asked.platform.wallets.siwx, _network(asked.request)
    opened = await siwx.sign_in(asked.body.message, asked.body.signature, network=network)
    return from_record(auth.Session, opened)


def _network(request: Request) -> str:
    return network_around(address_of(request.scope, platform_of(request)))


async def challenge_genesis(asked: Asked) -> auth.GenesisChallenge:
    if (gate := asked.platform.wallets.gate) is None:
        raise NotAvailable(what="The genesis gate", why="the operator named no registry")
    return from_record(auth.GenesisChallenge, await gate.challenge(asked.caller.account))


async def list_wallets(asked: Asked) -> auth.WalletList:
    known = await asked.platform.wallets.wallets.of_account(asked.caller.account)
    return auth.WalletList(wallets=[from_record(auth.Wallet, one) for one in known])


async def challenge_link(asked: Asked) -> auth.SessionChallenge:
    made = await asked.platform.wallets.sessions.challenge(link_to=asked.caller.account)
    return from_record(auth.SessionChallenge, made)


async def link_wallet(asked: AskedBody[auth.LinkWallet]) -> auth.WalletList:
    await confirm_new_factor(asked.request, action="link_wallet", resource=asked.body.address)
    platform = asked.platform
    linked = await platform.wallets.sessions.link_wallet(
        asked.caller.account, asked.body.nonce, asked.body.address, asked.body.signature
    )
    known = await platform.wallets.wallets.of_account(asked.caller.account)
    shown = [from_record(auth.Wallet, one) for one in known if one.address == linked.caip10]
    return auth.WalletList(wallets=shown)


async def revoke_wallet(asked: Asked[operations.WalletPath]) -> None:
    platform = asked.platform
    cut = CutKeys(asked.path.address, actor=asked.actor, now=platform.clock.now())
    await platform.wallets.wallets.revoke(
        asked.caller.account, asked.path.address, actor=asked.actor, also=lambda conn, _: cut.end(conn)
    )
    for gone in cut.ended:
        platform.keys.forget(gone)


BINDINGS = (
    bind(account_operations.SHOW_ME, me),
    bind(account_operations.LIST_TRANSFERS, transfers),
    bind(account_operations.SEND_SATS, send),
    bind(account_operations.SHOW_USAGE, usage),
    bind(account_operations.LIST_USAGE_SEGMENTS, segments),
    bind(account_operations.LIST_USAGE_OF_SANDBOXES, usage_of_sandboxes),
    bind(operations.CHALLENGE_WALLET, challenge_wallet),
    bind(operations.OPEN_SESSION, open_session),
    bind(operations.CLOSE_SESSION, close_session),
    bind(operations.END_SESSIONS, end_sessions),
    bind(operations.OFFER_SIWX, siwx_offer),
    bind(operations.SIGN_IN_WITH_X, sign_in),
    bind(operations.CHALLENGE_GENESIS, challenge_genesis),
    bind(operations.LIST_WALLETS, list_wallets),
    bind(operations.CHALLENGE_LINK, challenge_link),
    bind(operations.LINK_WALLET, link_wallet),
    bind(operations.REVOKE_WALLET, revoke_wallet),
)
