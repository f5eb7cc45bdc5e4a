"""Cutting a child key from one's own account, and giving it more."""

from __future__ import annotations

from sqlalchemy import Connection
from starlette.responses import Response

from sandboxer.accounts import delegation, scopes
from sandboxer.accounts.caps import Caps
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.confirming import confirm, is_wallet
from sandboxer.edges.http.delegated import facts, shown_key
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.moments import moment
from sandboxer.identity.keys import generate
from sandboxer.kernel.ids import new_id
from sandboxer.wire.keys import CutKey, DelegatedKey, NewDelegatedKey, TopUpKey
from sandboxer.wire.operations import keys as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import PublicKeyPath


async def cut(asked: Asked[NoParameters, NoParameters, CutKey]) -> Response:
    platform, who = asked.platform, asked.caller
    wish = delegation.Cut(
        name=asked.body.name,
        budget_sats=asked.body.budget_sats,
        scopes=scopes.parse(asked.body.scopes),
        depth=asked.body.depth,
        slots=asked.body.slots,
        expires_at=moment(asked.body.expires_at, field="expires_at"),
        caps=Caps(**asked.body.caps.model_dump()),
    )
    if is_wallet(asked.request):
        # It would outlive the session that made it.
        await confirm(asked.request, action="cut_key", resource=who.account)
    await platform.authorities.of(who)
    new = generate(new_id("acc"), asked.body.name, accepts_v1=False)
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

    return await once_bound(asked.request, act, keep_answer=False)


async def top_up(asked: Asked[PublicKeyPath, NoParameters, TopUpKey]) -> DelegatedKey:
    platform, who = asked.platform, asked.caller
    now = platform.clock.now()

    def write(conn: Connection) -> delegation.DelegatedKey:
        child = delegation.find_below(conn, who.account, asked.path.public_key)
        delegation.top_up(
            conn,
            who.account,
            child.account,
            asked.body.sats,
            id=asked.body.id,
            cut_by=who.public_key,
            now=now,
        )
        return child

    return shown_key(await platform.store.write(write))


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CUT_KEY, cut),
    bind(operations.TOP_UP_KEY, top_up),
)
