"""Whose address it is must be allowed to act: what a suspended account serves is not served on, nor woken."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from sandboxer.accounts.authority import AuthorityBook, demand_active
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Forbidden

# Raises Forbidden unless this account may act now; answers from memory.
Owners = Callable[[str], Awaitable[None]]


def owners(authorities: AuthorityBook, clock: Clock) -> Owners:
    async def demand(account: str) -> None:
        if account == OWNER_ACCOUNT:
            return
        authority = await authorities.of(Caller(public_key="system:proxy", account=account))
        try:
            demand_active(authority, now=clock.now())
        except Forbidden:
            # Why is between its owner and the operator.
            raise Forbidden(
                why="what is served here is not served at present",
                reason="owner_not_active",
                hint="Its owner has to ask the operator of this platform.",
            ) from None

    return demand
