"""Puts together what backends are chosen by, from the settings and from sandboxes that live."""

from __future__ import annotations

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.hosts.routes.observations import Observations
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.sandboxes.dependencies import Routes, SandboxDependencies
from sandboxer.settings import Settings
from sandboxer.wiring.backends import BoundBackends


def routes_of(
    settings: Settings, bound: BoundBackends, clock: Clock, authorities: AuthorityRepository
) -> Routes:
    """Returns what is needed to choose a backend."""

    async def is_stranger(caller: Caller) -> bool:
        return not (caller.is_owner or (await authorities.of(caller)).is_invited)

    return Routes(
        observed=Observations(clock),
        policy=settings.route_policy,
        pricing=settings.prices if settings.is_charged else None,
        usd_per_btc=settings.fixed_usd_per_btc,
        metered=bound.metered,
        experimental=bound.experimental,
        is_stranger=is_stranger,
    )


def made_before(dependencies: SandboxDependencies) -> list[tuple[str, float]]:
    """Returns how long the sandboxes that live took their backends, the oldest first."""
    living = sorted(dependencies.repository.living(), key=lambda one: one.created_at)
    return [
        (one.backend, one.timings_ms["provision"])
        for one in living
        if "provision" in one.timings_ms and len(one.route.attempts) < 2
    ]
