"""The host, for its owner."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer import __version__
from sandboxer.backends.contract import Fingerprint
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import failures
from sandboxer.edges.http.state import caller, platform_of, require_owner
from sandboxer.sandboxes.stale import StaleSandbox
from sandboxer.wire.capabilities import BackendCapabilities, Lack
from sandboxer.wire.host import Host
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
    found = await platform_of(request).sandboxes.stale(caller(request))
    return json_response(StaleList(stale=_listed(found)))


@router.post(
    "/reap-stale",
    operation_id="reapStale",
    response_model=Reaped,
    responses=failures(403),
    summary="Remove what no record accounts for (owner)",
)
async def reap_stale(request: Request) -> Response:
    removed = await platform_of(request).sandboxes.reap_stale(caller(request))
    return json_response(Reaped(removed=_listed(removed)))


def backend(name: str, seen: Fingerprint, capabilities: Sequence[str] = ()) -> BackendCapabilities:
    return BackendCapabilities(
        name=name,
        healthy=seen.healthy,
        capabilities=sorted(capabilities),
        walls=sorted(wall.value for wall in seen.walls),
        lacks=[Lack(what=lack.what, why=lack.why, remedy=lack.remedy) for lack in seen.lacks],
    )


def _listed(found: Sequence[StaleSandbox]) -> list[Stale]:
    return [Stale(sandbox_id=item.sandbox_id, backend=item.backend, why=item.why) for item in found]
