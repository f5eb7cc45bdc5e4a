"""More CPUs and memory for a running sandbox, and back."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.failures import inside
from sandboxer.edges.http.lean import LeanRoute
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.wire.boosts import Boost
from sandboxer.wire.sandboxes import Sandbox
from sandboxer.wire.words import SandboxId

router = APIRouter(prefix="/v1/sandboxes/{sandbox_id}", tags=["sandboxes"], route_class=LeanRoute)


@router.post(
    "/boost",
    operation_id="boostSandbox",
    response_model=Sandbox,
    responses=inside(402),
    summary="More CPUs, and 2 GB of memory with each, at once and without a restart",
)
async def boost(request: Request, sandbox_id: SandboxId, body: Boost) -> Response:
    record = await platform_of(request).sandboxes.boost(sandbox_id, body.vcpus, caller(request))
    return json_response(answers.sandbox(record))


@router.post(
    "/unboost",
    operation_id="unboostSandbox",
    response_model=Sandbox,
    responses=inside(),
    summary="Back to what it had; not boosted is success",
)
async def unboost(request: Request, sandbox_id: SandboxId) -> Response:
    record = await platform_of(request).sandboxes.unboost(sandbox_id, caller(request))
    return json_response(answers.sandbox(record))
