"""Routes of sandboxes: create, show, list, change, remove, and change CPUs and memory of a running one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from starlette.responses import Response

from sandboxer.agents.inception.tree import made_inside, sandbox_tree
from sandboxer.artifacts.clones import is_image_id
from sandboxer.edges.http import answers
from sandboxer.edges.http.answers import from_record, json_response
from sandboxer.edges.http.binding import Asked, AskedPathBody, AskedQuery, Handler, bind
from sandboxer.edges.http.demands import (
    confirm_locked_sandbox,
    gate_proof,
    offering,
    pass_gate,
    paying_caller,
)
from sandboxer.edges.http.idempotency import Bind, make_once, once_bound
from sandboxer.edges.http.operator_audit import note_endings
from sandboxer.edges.http.purchases import (
    buy_sandbox,
    extend,
    is_stranger,
    named_payer,
    presented_in,
    proven,
    purchase,
    settled_headers,
)
from sandboxer.edges.http.requests import copy_request, labels_of, wanted_volumes
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sandboxes import records
from sandboxer.sandboxes.charging import spent_sats
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import OVER, State
from sandboxer.sandboxes.promises import WORKSPACE
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import (
    boosts,
    creation,
    description,
    disks,
    inspection,
    lifetime,
    locks,
    pause,
)
from sandboxer.sandboxes.use_cases.admission import price_of_extend
from sandboxer.wire.operations import sandboxes as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.sandboxes import (
    Boost,
    ChangeSandbox,
    ChangeTtl,
    CreateSandbox,
    DestroyedSandbox,
    Expired,
    MadeInside,
    Reachability,
    Sandbox,
    SandboxPage,
    SandboxTree,
    TreeEntry,
    Usage,
)
from sandboxer.wiring import Platform


async def create(asked: Asked[NoParameters, operations.CreateSandboxQuery, CreateSandbox]) -> Response:
    platform, wanted = asked.platform, _wanted(asked.body)
    presented = presented_in(asked.request)
    if is_stranger(asked.request):
        # Before a price is named: what is bought for it would be of no use.
        creation.check_image(platform.sandboxes, wanted)
    if presented is not None and platform.purchases.price(wanted, None).payable.sats:
        if asked.body.snapshot is not None:
            raise InvalidRequest(
                field="snapshot",
                why="a sandbox that is paid for in its own request begins as no snapshot; top up first",
            )
        if is_image_id(asked.body.image):
            raise InvalidRequest(
                field="image",
                why="a sandbox that is paid for in its own request takes an image of the host; top up first",
            )
        if asked.body.volumes:
            raise InvalidRequest(
                field="volumes",
                why="a sandbox that is paid for in its own request has no volumes; top up first",
            )
        if asked.body.scope is not None:
            # What lives already would be paid for, and another made.
            raise InvalidRequest(
                field="scope",
                why="a sandbox that is paid for in its own request is shared with nobody; top up first",
            )
        return await buy_sandbox(asked.request, wanted, presented)
    who = await paying_caller(asked.request, lambda: platform.purchases.price(wanted, None))

    async def make_shared(bind: Bind | None) -> records.Sandbox:
        async with platform.admission.shared(wanted, who, wait=asked.query.wait) as kept:
            return kept or await make(bind)

    async def make(bind: Bind | None) -> records.Sandbox:
        # Only now: what it names may be gone when a repetition asks for the same answer.
        async with (
            platform.admission.of(wanted, who, gate_proof(asked.request)) as begun,
            offering(asked.request, lambda: platform.purchases.price(begun, who.account)),
        ):
            return await creation.create(platform.sandboxes, begun, who, wait=asked.query.wait, also=bind)

    recall = partial(creation.recall, platform.sandboxes, wait=asked.query.wait)
    by = make if wanted.wishes.scope is None else make_shared
    return await make_once(asked.request, by, recall, _created)


def _created(made: records.Sandbox) -> Response:
    return json_response(answers.sandbox(made), 201, location=f"/v1/sandboxes/{made.id}")


async def list_sandboxes(asked: AskedQuery[operations.ListSandboxesQuery]) -> SandboxPage:
    page = await inspection.list_sandboxes(
        asked.platform.sandboxes,
        asked.caller,
        labels=labels_of(asked.query.label),
        states=() if asked.query.state is None else (State(asked.query.state),),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [answers.sandbox(record) for record in page.records]
    return SandboxPage.model_construct(sandboxes=shown, next_cursor=page.next_cursor)


async def expire(asked: AskedQuery[operations.ExpireSandboxesQuery]) -> Expired:
    platform, who = asked.platform, asked.caller
    expiry = await lifetime.expire(
        platform.sandboxes, who, apply=asked.query.apply, before=lambda due: note_endings(platform, who, due)
    )
    ids = [sandbox.id for sandbox in expiry.sandboxes]
    return Expired(applied=expiry.is_applied, sandbox_ids=ids)


def _verb(
    act: Callable[[SandboxDependencies, str, Caller], Awaitable[records.Sandbox]],
) -> Handler[operations.SandboxPath]:
    """Returns the handler of a verb that needs the sandbox and its caller, and answers with the sandbox."""

    async def handle(asked: Asked[operations.SandboxPath]) -> Sandbox:
        return answers.sandbox(await act(asked.platform.sandboxes, asked.path.sandbox_id, asked.caller))

    return handle


async def stop(asked: Asked[operations.SandboxPath, operations.StopSandboxQuery]) -> Sandbox:
    platform, memory = asked.platform, asked.query.memory
    return answers.sandbox(
        await pause.stop(platform.sandboxes, asked.path.sandbox_id, asked.caller, memory=memory)
    )


async def change(asked: AskedPathBody[operations.SandboxPath, ChangeSandbox]) -> Sandbox:
    record = await description.change(
        asked.platform.sandboxes,
        asked.path.sandbox_id,
        asked.caller,
        name=asked.body.name,
        labels=asked.body.labels,
    )
    return answers.sandbox(record)


async def destroy(asked: Asked[operations.SandboxPath]) -> DestroyedSandbox:
    platform = asked.platform
    found = await platform.sandboxes.visible(asked.path.sandbox_id, asked.caller)
    # Looked up before it ends: then its reconciler ends what it made, or leaves it.
    made = None if found.state in OVER else await made_inside(platform.sandboxes, platform.store, found)
    record = await end(asked)
    await platform.access.egress.outlets.settle(record.id)
    shown = await _with_actuals(platform, record)
    ended = await platform.events.last(record.id, "sandbox.destroyed")
    return DestroyedSandbox(
        **dict(shown),
        made_inside=None if made is None else from_record(MadeInside, made),
        cleanup=None if ended is None else ended.data.get("cleanup"),
    )


async def end(asked: Asked[operations.SandboxPath], *, wait: bool = True) -> records.Sandbox:
    """Destroys it, or without `wait` only sees to it that it will be destroyed."""
    platform, sandbox_id = asked.platform, asked.path.sandbox_id
    is_confirmed = await confirm_locked_sandbox(asked.request, sandbox_id, action="destroy")
    # Its last bytes of traffic are part of its cost: those known now, and those of its very end.
    await platform.access.egress.outlets.settle(sandbox_id)
    return await lifetime.destroy(
        platform.sandboxes, sandbox_id, asked.caller, despite_lock=is_confirmed, wait=wait
    )


async def recreate(asked: Asked[operations.SandboxPath]) -> Sandbox:
    sandboxes, who = asked.platform.sandboxes, asked.caller
    is_confirmed = await confirm_locked_sandbox(asked.request, asked.path.sandbox_id, action="recreate")
    return answers.sandbox(
        await disks.recreate(sandboxes, asked.path.sandbox_id, who, despite_lock=is_confirmed)
    )


async def lock(asked: Asked[operations.SandboxPath]) -> Sandbox:
    platform, who = asked.platform, asked.caller
    found = await platform.sandboxes.visible(asked.path.sandbox_id, who)
    # Otherwise nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    return answers.sandbox(await locks.lock(platform.sandboxes, asked.path.sandbox_id, who))


async def unlock(asked: Asked[operations.SandboxPath]) -> Sandbox:
    await confirm_locked_sandbox(asked.request, asked.path.sandbox_id, action="unlock")
    return answers.sandbox(await locks.unlock(asked.platform.sandboxes, asked.path.sandbox_id, asked.caller))


async def change_ttl(asked: AskedPathBody[operations.SandboxPath, ChangeTtl]) -> Response:
    sandboxes = asked.platform.sandboxes
    if (presented := presented_in(asked.request)) is None:
        who = await paying_caller(asked.request, lambda: price_of_extend(asked.path.sandbox_id, None))
    else:
        who = await named_payer(asked.request, presented)

    async def act(bind: Bind | None) -> Response:
        # Everything that could refuse it is checked before the payment.
        async with nullcontext() if presented is None else proven(asked.request, presented):
            found = await lifetime.check_ttl(
                sandboxes, asked.path.sandbox_id, asked.body.duration, who, quote_id=asked.body.quote_id
            )
            await pass_gate(asked.request, found.profile)
        payment = None if presented is None else await extend(asked.request, asked.path.sandbox_id, presented)
        async with offering(asked.request, lambda: price_of_extend(asked.path.sandbox_id, who.account)):
            record = await lifetime.change_ttl(
                sandboxes,
                asked.path.sandbox_id,
                asked.body.duration,
                who,
                quote_id=asked.body.quote_id,
                also=bind,
            )
        answer = json_response(answers.sandbox(record))
        if payment is not None:
            answer.headers.update(settled_headers(payment))
        return answer

    async def recall(extended_id: str) -> Response | None:
        return json_response(answers.sandbox(await sandboxes.visible(extended_id, who)))

    if presented is None:
        return await once_bound(asked.request, act, recall=recall)
    return await purchase(asked.request, presented, act, recall=recall)


async def reachability(asked: Asked[operations.SandboxPath]) -> Reachability:
    seen = await inspection.reachability(asked.platform.sandboxes, asked.path.sandbox_id, asked.caller)
    platform, id_ = asked.platform, seen.sandbox.id
    root = f"/v1/sandboxes/{asked.path.sandbox_id}"
    profile = platform.sandboxes.profiles.find(seen.sandbox.profile)
    named = {} if profile is None else profile.reachability
    gateway, url = platform.access.ssh.gateway, platform.settings.url
    return Reachability.model_construct(
        sandbox_id=asked.path.sandbox_id,
        reachable=seen.is_reachable,
        state=seen.sandbox.state.value,
        latency_ms=seen.latency_ms,
        exec=f"{root}/exec",
        files=f"{root}/files",
        terminal=f"{root}/terminal",
        reason=seen.reason,
        ssh=None if gateway is None else f"ssh://{id_}@{gateway.host}:{gateway.port}",
        remote_dir=WORKSPACE,
        tunnel=named.get("tunnel", f"{url}/v1/sandboxes/{id_}/previews"),
        identity=named.get("identity", f"{url}/v1/ssh-keys"),
        poll=f"{url}/v1/sandboxes/{id_}",
        events=f"{url}/v1/sandboxes/{id_}/events",
        webhook=f"{url}/v1/webhooks",
    )


async def usage(asked: Asked[operations.SandboxPath]) -> Usage:
    platform = asked.platform
    seen = await inspection.usage(platform.sandboxes, asked.path.sandbox_id, asked.caller)
    sent, received = await platform.access.egress.outlets.moved(asked.path.sandbox_id)
    return from_record(
        Usage,
        seen,
        sandbox_id=asked.path.sandbox_id,
        egress_sent_bytes=sent,
        egress_received_bytes=received,
    )


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
    return replace(copy_request(body), wanted_volumes=wanted_volumes(body.volumes))


async def boost(asked: AskedPathBody[operations.SandboxPath, Boost]) -> Sandbox:
    record = await boosts.boost(
        asked.platform.sandboxes, asked.path.sandbox_id, asked.caller, vcpus=asked.body.vcpus
    )
    return answers.sandbox(record)


async def tree(asked: Asked) -> SandboxTree:
    platform, caller = asked.platform, asked.caller
    await platform.authorities.of(caller)
    found = await sandbox_tree(platform.sandboxes, platform.store, caller.account)
    return SandboxTree.model_construct(
        sandboxes=[from_record(TreeEntry, one, state=one.state.value) for one in found]
    )


BINDINGS = (
    bind(operations.CREATE_SANDBOX, create),
    bind(operations.GET_SANDBOX_TREE, tree),
    bind(operations.LIST_SANDBOXES, list_sandboxes),
    bind(operations.EXPIRE_SANDBOXES, expire),
    bind(operations.GET_SANDBOX, _verb(SandboxDependencies.visible)),
    bind(operations.CHANGE_SANDBOX, change),
    bind(operations.DESTROY_SANDBOX, destroy),
    bind(operations.RECREATE_SANDBOX, recreate),
    bind(operations.LOCK_SANDBOX, lock),
    bind(operations.UNLOCK_SANDBOX, unlock),
    bind(operations.STOP_SANDBOX, stop),
    bind(operations.RESUME_SANDBOX, _verb(pause.resume)),
    bind(operations.FREEZE_SANDBOX, _verb(pause.freeze)),
    bind(operations.THAW_SANDBOX, _verb(pause.thaw)),
    bind(operations.EXTEND_TTL, change_ttl),
    bind(operations.GET_REACHABILITY, reachability),
    bind(operations.GET_USAGE, usage),
    bind(operations.BOOST_SANDBOX, boost),
    bind(operations.UNBOOST_SANDBOX, _verb(boosts.unboost)),
)
