"""The host, for its owner."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from sandboxer import __version__
from sandboxer.artifacts.garbage import decision
from sandboxer.artifacts.images.published.collecting import Tier
from sandboxer.backends.contract import Fingerprint
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.matching import Binding
from sandboxer.edges.http.state import require_owner
from sandboxer.kernel.durations import format_duration
from sandboxer.sandboxes.quarantine.records import Held
from sandboxer.sandboxes.quarantine.use_cases import Quarantine
from sandboxer.wire.capabilities import BackendCapabilities, Lack
from sandboxer.wire.host import Collected, Garbage, GarbageItem, Host
from sandboxer.wire.operations import host as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.host import CollectGarbageQuery
from sandboxer.wire.sandboxes import Reaped, Stale, StaleList


async def inspect(asked: Asked[NoParameters, NoParameters, None]) -> Host:
    require_owner(asked.request)
    platform = asked.platform
    prints = await platform.sandboxes.fingerprints()
    return Host(
        version=__version__,
        uptime_s=round((platform.clock.now() - asked.request.app.state.started_at).total_seconds(), 3),
        backends=[backend(name, seen) for name, seen in sorted(prints.items())],
        facts={f"{name}.{k}": v for name, seen in prints.items() for k, v in seen.facts.items()},
        sandboxes=dict(await platform.sandboxes.counts()),
    )


async def stale(asked: Asked[NoParameters, NoParameters, None]) -> StaleList:
    sandboxes = asked.platform.sandboxes
    found = await sandboxes.stale(asked.caller)
    return StaleList(stale=_listed(found, sandboxes.room.quarantine))


async def reap_stale(asked: Asked[NoParameters, NoParameters, None]) -> Reaped:
    sandboxes = asked.platform.sandboxes
    removed = await sandboxes.reap_stale(asked.caller)
    return Reaped(removed=_listed(removed, sandboxes.room.quarantine))


async def garbage(asked: Asked[NoParameters, NoParameters, None]) -> Garbage:
    collector = asked.platform.artifacts.garbage
    found = [_garbage(one, collector.grace) for one in await collector.find(asked.caller)]
    return Garbage(grace=format_duration(collector.grace), garbage=found)


async def collect_garbage(asked: Asked[NoParameters, CollectGarbageQuery, None]) -> Collected:
    collector = asked.platform.artifacts.garbage
    removed = await collector.collect(asked.caller, despite_grace=asked.query.now)
    return Collected(removed=[_garbage(one, collector.grace) for one in removed])


def backend(name: str, seen: Fingerprint, capabilities: Sequence[str] = ()) -> BackendCapabilities:
    return BackendCapabilities(
        name=name,
        healthy=seen.healthy,
        capabilities=sorted(capabilities),
        walls=sorted(wall.value for wall in seen.walls),
        lacks=[Lack(what=lack.what, why=lack.why, remedy=lack.remedy) for lack in seen.lacks],
    )


def _garbage(one: decision.Garbage, grace: timedelta) -> GarbageItem:
    return GarbageItem(
        id=one.id,
        tier="base" if one.tier is Tier.BASE else "leftover",
        why=decision.WHY[one.tier],
        backend=one.backend,
        size_bytes=one.size_bytes,
        since=one.since,
        goes_at=one.goes_at(grace),
    )


def _listed(found: Sequence[Held], quarantine: Quarantine) -> list[Stale]:
    return [
        Stale(
            id=one.unknown.id,
            sandbox_id=one.unknown.id,
            kind=one.unknown.kind.value,
            backend=one.unknown.backend,
            why=one.unknown.why,
            first_seen=one.sighting.first_seen,
            goes_at=quarantine.goes_at(one),
        )
        for one in found
    ]


BINDINGS: tuple[Binding, ...] = (
    bind(operations.INSPECT_HOST, inspect),
    bind(operations.LIST_STALE, stale),
    bind(operations.REAP_STALE, reap_stale),
    bind(operations.LIST_GARBAGE, garbage),
    bind(operations.COLLECT_GARBAGE, collect_garbage),
)
