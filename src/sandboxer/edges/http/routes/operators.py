"""What the operator does to accounts. Every act has a reason and a line in the audit log."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import operators, records
from sandboxer.accounts.caps import Caps
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.moments import moment
from sandboxer.edges.http.routes.accounts import account, balance
from sandboxer.edges.http.state import caller, platform_of, require_owner
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.wire import accounts as wire
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX

router = APIRouter(prefix="/v1/accounts", tags=["operators"])
AccountId = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$", max_length=63)]
# Would be taken for one's own account by GET /v1/accounts/me.
RESERVED = frozenset({"me"})
Act = Callable[[Connection, Caller, datetime], records.Account]


async def _do(request: Request, act: Act, status: int = 200) -> Response:
    platform, operator = platform_of(request), require_owner(request)
    now = platform.clock.now()
    changed = await platform.store.write(lambda conn: act(conn, operator, now))
    return json_response(account(changed, now=now), status)


@router.post(
    "",
    operation_id="createAccount",
    status_code=201,
    response_model=wire.Account,
    responses=failures(409),
    summary="Open an account (owner)",
)
async def create(request: Request, body: wire.CreateAccount) -> Response:
    if body.id in RESERVED:
        raise InvalidRequest(field="id", why="this name is reserved")
    caps = Caps(**body.caps.model_dump())
    return await _do(
        request,
        lambda conn, who, now: operators.create_account(
            conn, who, id=body.id, name=body.name, caps=caps, reason=body.reason, now=now
        ),
        201,
    )


@router.get(
    "",
    operation_id="listAccounts",
    response_model=wire.AccountPage,
    responses=failures(404),
    summary="All accounts, oldest first (owner)",
)
async def list_accounts(
    request: Request,
    after: Annotated[wire.AccountId | None, Query(description="The last id of the page before.")] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    platform, operator = platform_of(request), require_owner(request)
    found = await platform.store.read(
        lambda conn: operators.list_accounts(conn, operator, after=after, limit=limit)
    )
    now = platform.clock.now()
    shown = [account(one, now=now) for one in found]
    following = found[-1].id if len(found) == limit else None
    return json_response(wire.AccountPage(accounts=shown, next_after=following))


@router.get(
    "/{account_id}",
    operation_id="showAccount",
    response_model=wire.AccountReport,
    responses=failures(404),
    summary="One account with its money (owner)",
)
async def show(request: Request, account_id: AccountId) -> Response:
    platform, operator = platform_of(request), require_owner(request)
    now = platform.clock.now()
    seen = await platform.store.read(lambda conn: operators.view_account(conn, operator, account_id, now=now))
    money = None if seen.money is None else balance(seen.money)
    return json_response(wire.AccountReport(account=account(seen.account, now=now), money=money))


@router.post(
    "/{account_id}/suspend",
    operation_id="suspendAccount",
    response_model=wire.Account,
    responses=failures(404, 409),
    summary="It and all below it may act no more; nothing is destroyed (owner)",
)
async def suspend(request: Request, account_id: AccountId, body: wire.ChangeAccount) -> Response:
    return await _do(
        request,
        lambda conn, who, now: operators.suspend_account(conn, who, account_id, reason=body.reason, now=now),
    )


@router.post(
    "/{account_id}/reinstate",
    operation_id="reinstateAccount",
    response_model=wire.Account,
    responses=failures(404, 409),
    summary="Undo a suspension (owner)",
)
async def reinstate(request: Request, account_id: AccountId, body: wire.ChangeAccount) -> Response:
    return await _do(
        request,
        lambda conn, who, now: operators.reinstate_account(
            conn, who, account_id, reason=body.reason, now=now
        ),
    )


@router.post(
    "/{account_id}/close",
    operation_id="closeAccount",
    response_model=wire.Account,
    responses=failures(404, 409),
    summary="For good; record and ledger stay. A 409 while anything of it runs or lives (owner)",
)
async def close(request: Request, account_id: AccountId, body: wire.ChangeAccount) -> Response:
    return await _do(
        request,
        lambda conn, who, now: operators.close_account(conn, who, account_id, reason=body.reason, now=now),
    )


@router.post(
    "/{account_id}/entitle",
    operation_id="entitleAccount",
    response_model=wire.Account,
    responses=failures(404),
    summary="Give a tier until a date, or take it (owner)",
)
async def entitle(request: Request, account_id: AccountId, body: wire.EntitleAccount) -> Response:
    until = moment(body.until, field="until")
    return await _do(
        request,
        lambda conn, who, now: operators.entitle_account(
            conn, who, account_id, tier=body.tier, until=until, reason=body.reason, now=now
        ),
    )


@router.put(
    "/{account_id}/caps",
    operation_id="capAccount",
    response_model=wire.Account,
    responses=failures(404),
    summary="Spending caps (owner)",
)
async def cap(request: Request, account_id: AccountId, body: wire.CapAccount) -> Response:
    caps = Caps(**body.caps.model_dump())
    return await _do(
        request,
        lambda conn, who, now: operators.cap_account(
            conn, who, account_id, caps, reason=body.reason, now=now
        ),
    )


@router.post(
    "/{account_id}/adjust",
    operation_id="adjustAccount",
    response_model=wire.Moved,
    responses=failures(402, 404, 409),
    summary="Give or take sats, with a reason; the same id adjusts once (owner)",
)
async def adjust(request: Request, account_id: AccountId, body: wire.AdjustAccount) -> Response:
    platform, operator = platform_of(request), caller(request)
    now = platform.clock.now()
    is_new = await platform.store.write(
        lambda conn: operators.adjust(
            conn, operator, account_id, body.sats, id=body.id, reason=body.reason, now=now
        )
    )
    return json_response(wire.Moved(id=body.id, sats=body.sats, is_new=is_new))
