"""Cutting a child key from one's own account, and giving it more."""

from __future__ import annotations

from fastapi import APIRouter
from sqlalchemy import Connection
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.accounts import delegation, scopes
from sandboxer.accounts.caps import Caps
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.confirming import confirm, is_wallet
from sandboxer.edges.http.delegated import facts, shown_key
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.idempotency import Bind, IdempotencyKey, once_bound
from sandboxer.edges.http.moments import moment
from sandboxer.edges.http.routes.keys import PublicKey
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.identity.keys import generate
from sandboxer.kernel.ids import new_id
from sandboxer.wire.keys import CutKey, DelegatedKey, NewDelegatedKey, TopUpKey

router = APIRouter(prefix="/v1/keys", tags=["keys"])


@router.post(
    "/delegated",
    operation_id="cutKey",
    status_code=201,
    response_model=NewDelegatedKey,
    responses=failures(402, 409, 428),
    summary="Cut a child key: a budget, scopes, depth, slots, an end; never more than you have",
)
async def cut(request: Request, body: CutKey, idempotency_key: IdempotencyKey = None) -> Response:
    platform, who = platform_of(request), caller(request)
    wish = delegation.Cut(
        name=body.name,
        budget_sats=body.budget_sats,
        scopes=scopes.parse(body.scopes),
        depth=body.depth,
        slots=body.slots,
        expires_at=moment(body.expires_at, field="expires_at"),
        caps=Caps(**body.caps.model_dump()),
    )
    if is_wallet(request):
        # It would outlive the session that made it.
        await confirm(request, action="cut_key", resource=who.account)
    await platform.authorities.of(who)
    new = generate(new_id("acc"), body.name, accepts_v1=False)
    now = platform.clock.now()

    def write(conn: Connection, bind: Bind | None) -> delegation.DelegatedKey:
        made = delegation.cut(
            conn,
            who.account,
            wish,
            public_key=new.public_key,
            cut_by=who.public_key,
            account=new.account,
            slots_in_use=platform.slots.in_use(who.account),
            now=now,
        )
        platform.keys.insert(conn, new, actor=f"key:{who.public_key}", expires_at=made.expires_at)
        if bind is not None:
            # The budget has moved with it: whoever asks again must not move another.
            bind(conn, new.public_key)
        return made

    async def act(bind: Bind | None) -> Response:
        async with platform.slots.alone(who.account):
            made = await platform.store.write(lambda conn: write(conn, bind))
        shown = NewDelegatedKey(**facts(made), secret_key=new.secret_key, budget_sats=wish.budget_sats)
        return json_response(shown, 201)

    return await once_bound(request, act, keep_answer=False)


@router.post(
    "/{public_key}/top-up",
    operation_id="topUpKey",
    response_model=DelegatedKey,
    responses=failures(402, 404, 409),
    summary="Give a child key more sats; the same id gives once",
)
async def top_up(request: Request, public_key: PublicKey, body: TopUpKey) -> Response:
    platform, who = platform_of(request), caller(request)
    now = platform.clock.now()

    def write(conn: Connection) -> delegation.DelegatedKey:
        child = delegation.find_below(conn, who.account, public_key)
        delegation.top_up(
            conn, who.account, child.account, body.sats, id=body.id, cut_by=who.public_key, now=now
        )
        return child

    return json_response(shown_key(await platform.store.write(write)))
