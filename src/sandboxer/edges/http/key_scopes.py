"""Scopes that depend on what a request says, not on its operation alone."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.requests import Request

from sandboxer.accounts.authority import demand
from sandboxer.accounts.scopes import Scope
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire.operations.declaration import BodyScope


async def demand_scope(request: Request, scope: Scope) -> None:
    """Raises Forbidden for a delegated key without it; any other key may do what its account may."""
    platform, who = platform_of(request), caller(request)
    if who.is_owner:
        return
    authority = await platform.authorities.of(who)
    if authority.is_delegated:
        demand(authority, scope, now=platform.clock.now())


async def demand_body_scopes(request: Request, adds: Sequence[BodyScope], body: object) -> None:
    """Demands the scopes that fields of the body add."""
    for one in adds:
        if bool(getattr(body, one.field)) is one.is_given:
            await demand_scope(request, one.scope)


async def holds_scope(request: Request, scope: Scope) -> bool:
    platform, who = platform_of(request), caller(request)
    if who.is_owner:
        return True
    authority = await platform.authorities.of(who)
    return not authority.is_delegated or scope in authority.scopes
