"""The host, for its owner."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer import __version__
from sandboxer.artifacts.garbage import decision
from sandboxer.artifacts.images.published.collecting import Tier
from sandboxer.backends.contract import Fingerprint
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.state import caller, platform_of, require_owner
from sandboxer.kernel.durations import format_duration
from sandboxer.sandboxes.quarantine.records import Held
from sandboxer.sandboxes.quarantine.use_cases import Quarantine
from sandboxer.wire.capabilities import BackendCapabilities, Lack
from sandboxer.wire.host import Collected, Garbage, GarbageItem, Host
from sandboxer.wire.sandboxes import Reaped, Stale, StaleList

router = APIRouter(prefix="/v1/host", tags=["host"])


@router.get(
    "",
    operation_id="inspectHost",
    response_model=Host,
    responses=failures(403),
    summary="What this host can do and holds (owner)",
)
async def inspect(request: Request) -> Response:
    require_owner(request)
    platform = platform_of(request)
    prints = await platform.sandboxes.fingerprints()
    shown = Host(
        version=__version__,
        uptime_s=round((platform.clock.now() - request.app.state.started_at).total_seconds(), 3),
        backends=[backend(name, seen) for name, seen in sorted(prints.items())],
        facts={f"{name}.{k}": v for name, seen in prints.items() for k, v in seen.facts.items()},
        sandboxes=dict(await platform.sandboxes.counts()),
    )
    return json_response(shown)


@router.get(
    "/stale",
    operation_id="listStale",
    response_model=StaleList,
    responses=failures(403),
    summary="What no record accounts for (owner)",
)
async def stale(request: Request) -> Response:
    sandboxes = platform_of(request).sandboxes
    found = await sandboxes.stale(caller(request))
    return json_response(StaleList(stale=_listed(found, sandboxes.room.quarantine)))


@router.post(
    "/reap-stale",
    operation_id="reapStale",
    response_model=Reaped,
    responses=failures(403),
    summary="Remove what no record accounts for (owner)",
)
async def reap_stale(request: Request) -> Response:
    sandboxes = platform_of(request).sandboxes
    removed = await sandboxes.reap_stale(caller(request))
    return json_response(Reaped(removed=_listed(removed, sandboxes.room.quarantine)))


@router.get(
    "/garbage",
    operation_id="listGarbage",
    response_model=Garbage,
    responses=failures(403),
    summary="What nobody needs any more, and when it goes (owner)",
)
async def garbage(request: Request) -> Response:
    collector = platform_of(request).artifacts.garbage
    found = [_garbage(one, collector.grace) for one in await collector.find(caller(request))]
    return json_response(Garbage(grace=format_duration(collector.grace), garbage=found))


@router.post(
    "/collect-garbage",
    operation_id="collectGarbage",
    response_model=Collected,
    responses=failures(403),
    summary="Remove what nobody needs any more; the platform does this by itself, too (owner)",
)
async def collect_garbage(
    request: Request,
    now: Annotated[bool, Query(description="Also what is still in its time of grace.")] = False,
) -> Response:
    collector = platform_of(request).artifacts.garbage
    removed = await collector.collect(caller(request), despite_grace=now)
    return json_response(Collected(removed=[_garbage(one, collector.grace) for one in removed]))


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
