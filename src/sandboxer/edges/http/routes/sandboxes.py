"""Sandboxes: make, look, list, change, remove."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Annotated

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.images.published.spawning import is_image_id
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.buying import buy_sandbox, extend, named_payer, proven
from sandboxer.edges.http.confirming import confirm_locked, pass_gate
from sandboxer.edges.http.failures import failures, inside
from sandboxer.edges.http.idempotency import Bind, IdempotencyKey, once_bound
from sandboxer.edges.http.labelling import LabelFilter, labels_of
from sandboxer.edges.http.lean import LeanRoute
from sandboxer.edges.http.mounting import mounts
from sandboxer.edges.http.paying import offering, paying_caller, price_of_create, price_of_extend
from sandboxer.edges.http.purchases import presented_in, purchase, settled_headers
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.edges.http.visiting import note_endings
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sandboxes import records
from sandboxer.sandboxes.charging import spent_sats
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.locks import is_guarded
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.wire.sandboxes import (
    ChangeTtl,
    CreateSandbox,
    Expired,
    Reachability,
    Sandbox,
    SandboxPage,
    StateName,
    Usage,
)
from sandboxer.wire.words import PAGE_LIMIT_DEFAULT, PAGE_LIMIT_MAX, Cursor, SandboxId
from sandboxer.wiring import Platform

router = APIRouter(prefix="/v1/sandboxes", tags=["sandboxes"], route_class=LeanRoute)


@router.post(
    "",
    operation_id="createSandbox",
    status_code=201,
    response_model=Sandbox,
    responses=failures(402, 404, 409),
    summary="Make a sandbox",
)
async def create(
    request: Request,
    body: CreateSandbox,
    wait: Annotated[bool, Query(description="Answer only when it is ready.")] = True,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    platform, wanted = platform_of(request), _wanted(body)
    presented = presented_in(request)
    if presented is not None and price_of_create(platform, wanted, None).payable.sats:
        if body.snapshot is not None:
            raise InvalidRequest(field="snapshot", why="what comes with its payment has no snapshots; top up")
        if is_image_id(body.image):
            raise InvalidRequest(field="image", why="what comes with its payment has the host's only; top up")
        if body.volumes:
            raise InvalidRequest(field="volumes", why="what comes with its payment has no volumes; top up")
        return await buy_sandbox(request, wanted, presented)
    who = await paying_caller(request, lambda: price_of_create(platform, wanted, None))

    async def act(bind: Bind | None) -> Response:
        # Here, not before: what it names may be gone when the same answer is asked for again.
        begun = wanted
        if body.snapshot is not None:
            begun = await platform.artifacts.cloning.request_for(body.snapshot, wanted, who)
        elif body.image is not None and is_image_id(body.image):
            begun = await platform.artifacts.spawning.request_for(body.image, wanted, who)
        await pass_gate(request, begun.profile)
        asked = replace(begun, volumes=await mounts(request, body.volumes)) if body.volumes else begun
        async with (
            offering(request, lambda: price_of_create(platform, begun, who.account)),
            platform.slots.taken(await platform.authorities.of(who)),
        ):
            return _created(await platform.sandboxes.create(asked, who, wait=wait, also=bind))

    async def recall(sandbox_id: str) -> Response | None:
        made = await platform.sandboxes.recall(sandbox_id, who, wait=wait)
        return None if made is None else _created(made)

    return await once_bound(request, act, recall=recall)


def _created(made: records.Sandbox) -> Response:
    answer = json_response(answers.sandbox(made), 201)
    answer.headers["location"] = f"/v1/sandboxes/{made.id}"
    return answer


@router.get(
    "",
    operation_id="listSandboxes",
    response_model=SandboxPage,
    responses=failures(),
    summary="List sandboxes, newest first",
)
async def list_sandboxes(
    request: Request,
    state: Annotated[StateName | None, Query(description="Default: all but destroyed.")] = None,
    label: Annotated[
        list[LabelFilter], Query(max_length=16, description="`key=value`; all must match.")
    ] = [],  # noqa: B006
    cursor: Annotated[Cursor | None, Query()] = None,
    limit: Annotated[int, Query(ge=1, le=PAGE_LIMIT_MAX)] = PAGE_LIMIT_DEFAULT,
) -> Response:
    page = await platform_of(request).sandboxes.list(
        caller(request),
        labels=labels_of(label),
        state=None if state is None else State(state),
        cursor=cursor,
        limit=limit,
    )
    shown = [answers.sandbox(record) for record in page.sandboxes]
    return json_response(SandboxPage.model_construct(sandboxes=shown, next_cursor=page.next_cursor))


@router.post(
    "/expire",
    operation_id="expireSandboxes",
    response_model=Expired,
    responses=failures(403),
    summary="End what is past its time (owner)",
)
async def expire(
    request: Request,
    apply: Annotated[bool, Query(description="False: only say what would end.")] = False,
) -> Response:
    platform, who = platform_of(request), caller(request)
    expiry = await platform.sandboxes.expire(
        who, apply=apply, before=lambda due: note_endings(platform, who, due)
    )
    ids = [sandbox.id for sandbox in expiry.sandboxes]
    return json_response(Expired(applied=expiry.is_applied, sandbox_ids=ids))


@router.get(
    "/{sandbox_id}",
    operation_id="getSandbox",
    response_model=Sandbox,
    responses=failures(404),
    summary="Look at a sandbox",
)
async def get(request: Request, sandbox_id: SandboxId) -> Response:
    return json_response(
        answers.sandbox(await platform_of(request).sandboxes.get(sandbox_id, caller(request)))
    )


@router.delete(
    "/{sandbox_id}",
    operation_id="destroySandbox",
    response_model=Sandbox,
    responses=inside(428),
    summary="Remove a sandbox; removed already is success",
)
async def destroy(request: Request, sandbox_id: SandboxId) -> Response:
    platform, who = platform_of(request), caller(request)
    is_confirmed = await _confirm(request, sandbox_id, "destroy")
    # Its last bytes belong to what it cost: those known now, and those of its very end.
    await platform.access.egress.outlets.settle(sandbox_id)
    record = await platform.sandboxes.destroy(sandbox_id, who, despite_lock=is_confirmed)
    await platform.access.egress.outlets.settle(sandbox_id)
    return json_response(await _with_actuals(platform, record))


@router.post(
    "/{sandbox_id}/recreate",
    operation_id="recreateSandbox",
    response_model=Sandbox,
    responses=inside(402, 428),
    summary="New disk from the image, same id",
)
async def recreate(request: Request, sandbox_id: SandboxId) -> Response:
    sandboxes, who = platform_of(request).sandboxes, caller(request)
    is_confirmed = await _confirm(request, sandbox_id, "recreate")
    record = await sandboxes.recreate(sandbox_id, who, despite_lock=is_confirmed)
    return json_response(answers.sandbox(record))


@router.post(
    "/{sandbox_id}/lock",
    operation_id="lockSandbox",
    response_model=Sandbox,
    responses=failures(404, 409),
    summary="From now on destroying, recreating and unlocking it need a second proof",
)
async def lock(request: Request, sandbox_id: SandboxId) -> Response:
    platform, who = platform_of(request), caller(request)
    found = await platform.sandboxes.get(sandbox_id, who)
    # Else nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    return json_response(answers.sandbox(await platform.sandboxes.lock(sandbox_id, who)))


@router.post(
    "/{sandbox_id}/unlock",
    operation_id="unlockSandbox",
    response_model=Sandbox,
    responses=failures(404, 409, 428),
    summary="Let it be destroyed by a request alone again",
)
async def unlock(request: Request, sandbox_id: SandboxId) -> Response:
    await _confirm(request, sandbox_id, "unlock")
    record = await platform_of(request).sandboxes.unlock(sandbox_id, caller(request))
    return json_response(answers.sandbox(record))


@router.post(
    "/{sandbox_id}/stop",
    operation_id="stopSandbox",
    response_model=Sandbox,
    responses=inside(),
    summary="End its processes, keep its disk",
)
async def stop(request: Request, sandbox_id: SandboxId) -> Response:
    record = await platform_of(request).sandboxes.stop(sandbox_id, caller(request))
    return json_response(answers.sandbox(record))


@router.post(
    "/{sandbox_id}/resume",
    operation_id="resumeSandbox",
    response_model=Sandbox,
    responses=inside(402),
    summary="Start a stopped one again on its disk",
)
async def resume(request: Request, sandbox_id: SandboxId) -> Response:
    record = await platform_of(request).sandboxes.resume(sandbox_id, caller(request))
    return json_response(answers.sandbox(record))


@router.post(
    "/{sandbox_id}/freeze",
    operation_id="freezeSandbox",
    response_model=Sandbox,
    responses=inside(),
    summary="Pause every process in memory",
)
async def freeze(request: Request, sandbox_id: SandboxId) -> Response:
    record = await platform_of(request).sandboxes.freeze(sandbox_id, caller(request))
    return json_response(answers.sandbox(record))


@router.post(
    "/{sandbox_id}/thaw",
    operation_id="thawSandbox",
    response_model=Sandbox,
    responses=inside(402),
    summary="Let a frozen one go on",
)
async def thaw(request: Request, sandbox_id: SandboxId) -> Response:
    record = await platform_of(request).sandboxes.thaw(sandbox_id, caller(request))
    return json_response(answers.sandbox(record))


@router.patch(
    "/{sandbox_id}/ttl",
    operation_id="extendTtl",
    response_model=Sandbox,
    responses=failures(402, 404, 409),
    summary="Give it more time",
)
async def change_ttl(
    request: Request, sandbox_id: SandboxId, body: ChangeTtl, idempotency_key: IdempotencyKey = None
) -> Response:
    sandboxes = platform_of(request).sandboxes
    presented = presented_in(request)
    if presented is None:
        who = await paying_caller(request, lambda: price_of_extend(sandbox_id, None))
    else:
        who = await named_payer(request, presented)

    async def act(bind: Bind | None) -> Response:
        # All that could refuse it comes before the payment.
        async with nullcontext() if presented is None else proven(request, presented):
            found = await sandboxes.check_ttl(sandbox_id, body.duration, who, quote_id=body.quote_id)
            await pass_gate(request, found.profile)
        payment = None if presented is None else await extend(request, sandbox_id, presented)
        async with offering(request, lambda: price_of_extend(sandbox_id, who.account)):
            record = await sandboxes.change_ttl(
                sandbox_id, body.duration, who, quote_id=body.quote_id, also=bind
            )
        answer = json_response(answers.sandbox(record))
        if payment is not None:
            answer.headers.update(settled_headers(payment))
        return answer

    async def recall(extended_id: str) -> Response | None:
        return json_response(answers.sandbox(await sandboxes.get(extended_id, who)))

    if presented is None:
        return await once_bound(request, act, recall=recall)
    return await purchase(request, presented, act, recall=recall)


@router.get(
    "/{sandbox_id}/reachability",
    operation_id="getReachability",
    response_model=Reachability,
    responses=failures(404),
    summary="Does it answer, and where",
)
async def reachability(request: Request, sandbox_id: SandboxId) -> Response:
    seen = await platform_of(request).sandboxes.reachability(sandbox_id, caller(request))
    root = f"/v1/sandboxes/{sandbox_id}"
    shown = Reachability.model_construct(
        sandbox_id=sandbox_id,
        reachable=seen.is_reachable,
        state=seen.sandbox.state.value,
        latency_ms=seen.latency_ms,
        exec=f"{root}/exec",
        files=f"{root}/files",
        terminal=f"{root}/terminal",
        reason=seen.reason,
    )
    return json_response(shown)


@router.get(
    "/{sandbox_id}/usage",
    operation_id="getUsage",
    response_model=Usage,
    responses=inside(),
    summary="What it uses now",
)
async def usage(request: Request, sandbox_id: SandboxId) -> Response:
    platform = platform_of(request)
    seen = await platform.sandboxes.usage(sandbox_id, caller(request))
    sent, received = await platform.access.egress.outlets.moved(sandbox_id)
    shown = Usage.model_construct(
        sandbox_id=sandbox_id,
        cpu_s=seen.cpu_s,
        memory_bytes=seen.memory_bytes,
        memory_limit_bytes=seen.memory_limit_bytes,
        disk_bytes=seen.disk_bytes,
        disk_limit_bytes=seen.disk_limit_bytes,
        processes=seen.processes,
        processes_limit=seen.processes_limit,
        egress_sent_bytes=sent,
        egress_received_bytes=received,
    )
    return json_response(shown)


async def _confirm(request: Request, sandbox_id: str, action: str) -> bool:
    """True if it is locked and a second proof allowed this."""
    found = await platform_of(request).sandboxes.get(sandbox_id, caller(request))
    return is_guarded(found) and await confirm_locked(request, found, action=action)


async def _with_actuals(platform: Platform, record: records.Sandbox) -> Sandbox:
    sent, received = await platform.access.egress.outlets.moved(record.id)
    moved = {"egress_sent_bytes": sent, "egress_received_bytes": received}
    shown = answers.sandbox(record).model_copy(update=moved)
    if record.terms.is_free:
        return shown
    now = platform.clock.now()
    sats = await platform.store.read(lambda conn: spent_sats(conn, record, now=now))
    return shown.model_copy(update={"spent_sats": sats})


def _wanted(body: CreateSandbox) -> CreateRequest:
    wanted = body.resources
    return CreateRequest(
        profile=body.profile,
        name=body.name,
        image=body.image,
        trust=body.trust,
        ttl=body.ttl,
        idle_timeout=body.idle_timeout,
        resources=WantedResources() if wanted is None else WantedResources(**wanted.model_dump()),
        env=body.env,
        labels=body.labels,
        inputs=body.inputs,
        consumer=body.consumer,
        quote_id=body.quote_id,
    )
