"""What the operator does to accounts. Every act has a reason and a line in the audit log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import operators, records
from sandboxer.accounts.caps import Caps
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.moments import moment
from sandboxer.edges.http.routes.accounts import account, balance
from sandboxer.edges.http.state import platform_of, require_owner
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire import accounts as wire
from sandboxer.wire.accounts import (
    AccountPage,
    AccountReport,
    AdjustAccount,
    CapAccount,
    ChangeAccount,
    CreateAccount,
    EntitleAccount,
    Moved,
)
from sandboxer.wire.operations import operators as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.operators import ListAccountsQuery
from sandboxer.wire.operations.paths import AccountPath

# Would be taken for one's own account by GET /v1/accounts/me.
RESERVED = frozenset({"me"})
Act = Callable[[Connection, Caller, datetime], records.Account]


async def _do(request: Request, act: Act, status: int = 200) -> Response:
    platform, operator = platform_of(request), require_owner(request)
    now = platform.clock.now()
    changed = await platform.store.write(lambda conn: act(conn, operator, now))
    return json_response(account(changed, now=now), status)


async def create(asked: Asked[NoParameters, NoParameters, CreateAccount]) -> Response:
    if asked.body.id in RESERVED:
        raise InvalidRequest(field="id", why="this name is reserved")
    caps = Caps(**asked.body.caps.model_dump())
    return await _do(
        asked.request,
        lambda conn, who, now: operators.create_account(
            conn, who, id=asked.body.id, name=asked.body.name, caps=caps, reason=asked.body.reason, now=now
        ),
        201,
    )


async def list_accounts(asked: Asked[NoParameters, ListAccountsQuery, None]) -> AccountPage:
    platform, operator = asked.platform, require_owner(asked.request)
    found = await platform.store.read(
        lambda conn: operators.list_accounts(conn, operator, after=asked.query.after, limit=asked.query.limit)
    )
    now = platform.clock.now()
    shown = [account(one, now=now) for one in found]
    following = found[-1].id if len(found) == asked.query.limit else None
    return wire.AccountPage(accounts=shown, next_after=following)


async def show(asked: Asked[AccountPath, NoParameters, None]) -> AccountReport:
    platform, operator = asked.platform, require_owner(asked.request)
    now = platform.clock.now()
    seen = await platform.store.read(
        lambda conn: operators.view_account(conn, operator, asked.path.account_id, now=now)
    )
    money = None if seen.money is None else balance(seen.money)
    return wire.AccountReport(account=account(seen.account, now=now), money=money)


async def suspend(asked: Asked[AccountPath, NoParameters, ChangeAccount]) -> Response:
    return await _do(
        asked.request,
        lambda conn, who, now: operators.suspend_account(
            conn, who, asked.path.account_id, reason=asked.body.reason, now=now
        ),
    )


async def reinstate(asked: Asked[AccountPath, NoParameters, ChangeAccount]) -> Response:
    return await _do(
        asked.request,
        lambda conn, who, now: operators.reinstate_account(
            conn, who, asked.path.account_id, reason=asked.body.reason, now=now
        ),
    )


async def close(asked: Asked[AccountPath, NoParameters, ChangeAccount]) -> Response:
    return await _do(
        asked.request,
        lambda conn, who, now: operators.close_account(
            conn, who, asked.path.account_id, reason=asked.body.reason, now=now
        ),
    )


async def entitle(asked: Asked[AccountPath, NoParameters, EntitleAccount]) -> Response:
    until = moment(asked.body.until, field="until")
    return await _do(
        asked.request,
        lambda conn, who, now: operators.entitle_account(
            conn,
            who,
            asked.path.account_id,
            tier=asked.body.tier,
            until=until,
            reason=asked.body.reason,
            now=now,
        ),
    )


async def cap(asked: Asked[AccountPath, NoParameters, CapAccount]) -> Response:
    caps = Caps(**asked.body.caps.model_dump())
    return await _do(
        asked.request,
        lambda conn, who, now: operators.cap_account(
            conn, who, asked.path.account_id, caps, reason=asked.body.reason, now=now
        ),
    )


async def adjust(asked: Asked[AccountPath, NoParameters, AdjustAccount]) -> Moved:
    platform, operator = asked.platform, asked.caller
    now = platform.clock.now()
    is_new = await platform.store.write(
        lambda conn: operators.adjust(
            conn,
            operator,
            asked.path.account_id,
            asked.body.sats,
            id=asked.body.id,
            reason=asked.body.reason,
            now=now,
        )
    )
    return wire.Moved(id=asked.body.id, sats=asked.body.sats, is_new=is_new)


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CREATE_ACCOUNT, create),
    bind(operations.LIST_ACCOUNTS, list_accounts),
    bind(operations.SHOW_ACCOUNT, show),
    bind(operations.SUSPEND_ACCOUNT, suspend),
    bind(operations.REINSTATE_ACCOUNT, reinstate),
    bind(operations.CLOSE_ACCOUNT, close),
    bind(operations.ENTITLE_ACCOUNT, entitle),
    bind(operations.CAP_ACCOUNT, cap),
    bind(operations.ADJUST_ACCOUNT, adjust),
)
