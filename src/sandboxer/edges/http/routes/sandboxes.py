"""Routes of sandboxes: create, show, list, change, remove, and change CPUs and memory of a running one."""

from __future__ import annotations

from contextlib import nullcontext

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.clones import is_image_id
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.demands import confirm_locked, gate_proof, pass_gate
from sandboxer.edges.http.idempotency import Bind, once_bound
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.operator_audit import note_endings
from sandboxer.edges.http.payment import offering, paying_caller
from sandboxer.edges.http.purchases import (
    buy_sandbox,
    extend,
    named_payer,
    presented_in,
    proven,
    purchase,
    settled_headers,
)
from sandboxer.edges.http.requests import caller, labels_of, platform_of, wanted_resources, wanted_volumes
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sandboxes import records
from sandboxer.sandboxes.charges.charging import spent_sats
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases.locks import is_guarded
from sandboxer.sandboxes.use_cases.purchase import price_of_extend
from sandboxer.wire.operations import sandboxes as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import SandboxPath
from sandboxer.wire.operations.sandboxes import CreateSandboxQuery, ExpireSandboxesQuery, ListSandboxesQuery
from sandboxer.wire.sandboxes import (
    Boost,
    ChangeTtl,
    CreateSandbox,
    Expired,
    Reachability,
    Sandbox,
    SandboxPage,
    Usage,
)
from sandboxer.wiring import Platform


async def create(asked: Asked[NoParameters, CreateSandboxQuery, CreateSandbox]) -> Response:
    platform, wanted = asked.platform, _wanted(asked.body)
    presented = presented_in(asked.request)
    if presented is not None and platform.purchases.price(wanted, None).payable.sats:
        if asked.body.snapshot is not None:
            raise InvalidRequest(field="snapshot", why="what comes with its payment has no snapshots; top up")
        if is_image_id(asked.body.image):
            raise InvalidRequest(field="image", why="what comes with its payment has the host's only; top up")
        if asked.body.volumes:
            raise InvalidRequest(field="volumes", why="what comes with its payment has no volumes; top up")
        return await buy_sandbox(asked.request, wanted, presented)
    who = await paying_caller(asked.request, lambda: platform.purchases.price(wanted, None))

    async def act(bind: Bind | None) -> Response:
        # Only now: what it names may be gone when a repetition asks for the same answer.
        async with (
            platform.admission.of(wanted, who, gate_proof(asked.request)) as begun,
            offering(asked.request, lambda: platform.purchases.price(begun, who.account)),
        ):
            return _created(await platform.sandboxes.create(begun, who, wait=asked.query.wait, also=bind))

    async def recall(sandbox_id: str) -> Response | None:
        made = await platform.sandboxes.recall(sandbox_id, who, wait=asked.query.wait)
        return None if made is None else _created(made)

    return await once_bound(asked.request, act, recall=recall)


def _created(made: records.Sandbox) -> Response:
    answer = json_response(answers.sandbox(made), 201)
    answer.headers["location"] = f"/v1/sandboxes/{made.id}"
    return answer


async def list_sandboxes(asked: Asked[NoParameters, ListSandboxesQuery, None]) -> SandboxPage:
    page = await asked.platform.sandboxes.list(
        asked.caller,
        labels=labels_of(asked.query.label),
        state=None if asked.query.state is None else State(asked.query.state),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [answers.sandbox(record) for record in page.records]
    return SandboxPage.model_construct(sandboxes=shown, next_cursor=page.next_cursor)


async def expire(asked: Asked[NoParameters, ExpireSandboxesQuery, None]) -> Expired:
    platform, who = asked.platform, asked.caller
    expiry = await platform.sandboxes.expire(
        who, apply=asked.query.apply, before=lambda due: note_endings(platform, who, due)
    )
    ids = [sandbox.id for sandbox in expiry.sandboxes]
    return Expired(applied=expiry.is_applied, sandbox_ids=ids)


async def get(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    return answers.sandbox(await asked.platform.sandboxes.get(asked.path.sandbox_id, asked.caller))


async def destroy(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    platform, who = asked.platform, asked.caller
    is_confirmed = await _confirm(asked.request, asked.path.sandbox_id, "destroy")
    # Its last bytes of traffic are part of its cost: those known now, and those of its very end.
    await platform.access.egress.outlets.settle(asked.path.sandbox_id)
    record = await platform.sandboxes.destroy(asked.path.sandbox_id, who, despite_lock=is_confirmed)
    await platform.access.egress.outlets.settle(asked.path.sandbox_id)
    return await _with_actuals(platform, record)


async def recreate(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    sandboxes, who = asked.platform.sandboxes, asked.caller
    is_confirmed = await _confirm(asked.request, asked.path.sandbox_id, "recreate")
    record = await sandboxes.recreate(asked.path.sandbox_id, who, despite_lock=is_confirmed)
    return answers.sandbox(record)


async def lock(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    platform, who = asked.platform, asked.caller
    found = await platform.sandboxes.get(asked.path.sandbox_id, who)
    # Otherwise nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    return answers.sandbox(await platform.sandboxes.lock(asked.path.sandbox_id, who))


async def unlock(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    await _confirm(asked.request, asked.path.sandbox_id, "unlock")
    record = await asked.platform.sandboxes.unlock(asked.path.sandbox_id, asked.caller)
    return answers.sandbox(record)


async def stop(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    record = await asked.platform.sandboxes.stop(asked.path.sandbox_id, asked.caller)
    return answers.sandbox(record)


async def resume(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    record = await asked.platform.sandboxes.resume(asked.path.sandbox_id, asked.caller)
    return answers.sandbox(record)


async def freeze(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    record = await asked.platform.sandboxes.freeze(asked.path.sandbox_id, asked.caller)
    return answers.sandbox(record)


async def thaw(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    record = await asked.platform.sandboxes.thaw(asked.path.sandbox_id, asked.caller)
    return answers.sandbox(record)


async def change_ttl(asked: Asked[SandboxPath, NoParameters, ChangeTtl]) -> Response:
    sandboxes = asked.platform.sandboxes
    presented = presented_in(asked.request)
    if presented is None:
        who = await paying_caller(asked.request, lambda: price_of_extend(asked.path.sandbox_id, None))
    else:
        who = await named_payer(asked.request, presented)

    async def act(bind: Bind | None) -> Response:
        # Everything that could refuse it is checked before the payment.
        async with nullcontext() if presented is None else proven(asked.request, presented):
            found = await sandboxes.check_ttl(
                asked.path.sandbox_id, asked.body.duration, who, quote_id=asked.body.quote_id
            )
            await pass_gate(asked.request, found.profile)
        payment = None if presented is None else await extend(asked.request, asked.path.sandbox_id, presented)
        async with offering(asked.request, lambda: price_of_extend(asked.path.sandbox_id, who.account)):
            record = await sandboxes.change_ttl(
                asked.path.sandbox_id, asked.body.duration, who, quote_id=asked.body.quote_id, also=bind
            )
        answer = json_response(answers.sandbox(record))
        if payment is not None:
            answer.headers.update(settled_headers(payment))
        return answer

    async def recall(extended_id: str) -> Response | None:
        return json_response(answers.sandbox(await sandboxes.get(extended_id, who)))

    if presented is None:
        return await once_bound(asked.request, act, recall=recall)
    return await purchase(asked.request, presented, act, recall=recall)


async def reachability(asked: Asked[SandboxPath, NoParameters, None]) -> Reachability:
    seen = await asked.platform.sandboxes.reachability(asked.path.sandbox_id, asked.caller)
    root = f"/v1/sandboxes/{asked.path.sandbox_id}"
    return Reachability.model_construct(
        sandbox_id=asked.path.sandbox_id,
        reachable=seen.is_reachable,
        state=seen.sandbox.state.value,
        latency_ms=seen.latency_ms,
        exec=f"{root}/exec",
        files=f"{root}/files",
        terminal=f"{root}/terminal",
        reason=seen.reason,
    )


async def usage(asked: Asked[SandboxPath, NoParameters, None]) -> Usage:
    platform = asked.platform
    seen = await platform.sandboxes.usage(asked.path.sandbox_id, asked.caller)
    sent, received = await platform.access.egress.outlets.moved(asked.path.sandbox_id)
    return Usage.model_construct(
        sandbox_id=asked.path.sandbox_id,
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


async def _confirm(request: Request, sandbox_id: str, action: str) -> bool:
    """Returns True if it is locked and a second proof allowed this."""
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
    return CreateRequest(
        profile=body.profile,
        name=body.name,
        image=body.image,
        trust=body.trust,
        ttl=body.ttl,
        idle_timeout=body.idle_timeout,
        resources=wanted_resources(body.resources),
        env=body.env,
        labels=body.labels,
        inputs=body.inputs,
        consumer=body.consumer,
        quote_id=body.quote_id,
        snapshot=body.snapshot,
        wanted_volumes=wanted_volumes(body.volumes),
    )


async def boost(asked: Asked[SandboxPath, NoParameters, Boost]) -> Sandbox:
    record = await asked.platform.sandboxes.boost(asked.path.sandbox_id, asked.body.vcpus, asked.caller)
    return answers.sandbox(record)


async def unboost(asked: Asked[SandboxPath, NoParameters, None]) -> Sandbox:
    record = await asked.platform.sandboxes.unboost(asked.path.sandbox_id, asked.caller)
    return answers.sandbox(record)


BINDINGS: tuple[Binding, ...] = (
    bind(operations.CREATE_SANDBOX, create),
    bind(operations.LIST_SANDBOXES, list_sandboxes),
    bind(operations.EXPIRE_SANDBOXES, expire),
    bind(operations.GET_SANDBOX, get),
    bind(operations.DESTROY_SANDBOX, destroy),
    bind(operations.RECREATE_SANDBOX, recreate),
    bind(operations.LOCK_SANDBOX, lock),
    bind(operations.UNLOCK_SANDBOX, unlock),
    bind(operations.STOP_SANDBOX, stop),
    bind(operations.RESUME_SANDBOX, resume),
    bind(operations.FREEZE_SANDBOX, freeze),
    bind(operations.THAW_SANDBOX, thaw),
    bind(operations.EXTEND_TTL, change_ttl),
    bind(operations.GET_REACHABILITY, reachability),
    bind(operations.GET_USAGE, usage),
    bind(operations.BOOST_SANDBOX, boost),
    bind(operations.UNBOOST_SANDBOX, unboost),
)
