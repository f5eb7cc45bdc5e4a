"""E2B's snapshots and forks, over our own: what runs goes on where its backend keeps it, files anywhere."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from sandboxer.artifacts.clones import Batch
from sandboxer.artifacts.records import OVER
from sandboxer.artifacts.snapshots.records import Snapshot
from sandboxer.artifacts.snapshots.use_cases import Wanted
from sandboxer.edges.e2b.answers import DEFAULT_TAG, SNAPSHOT, answer, opened, snapshot_info
from sandboxer.edges.e2b.connect import message_of, status_of
from sandboxer.edges.e2b.sandboxes import keeps_memory, present
from sandboxer.edges.e2b.templates import begin
from sandboxer.edges.http import problems
from sandboxer.edges.http.binding import Asked, AskedPathBody, AskedQuery, bind
from sandboxer.edges.http.demands import confirm_locked, pass_gate
from sandboxer.edges.http.idempotency import Bind, make_once
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import Conflict, NotFound, SandboxerError
from sandboxer.kernel.tasks import to_the_end
from sandboxer.kernel.values import is_volume_id
from sandboxer.sandboxes.promises import Wishes
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import lifetime
from sandboxer.sandboxes.use_cases.memory import can_be_kept_now, can_keep
from sandboxer.wire.e2b import control, operations
from sandboxer.wire.operations.sandboxes import SandboxPath
from sandboxer.wiring import Platform

# How long the snapshot of a fork is kept whose server died before it dropped it.
_PASSING = "1h"


async def take_snapshot(asked: AskedPathBody[SandboxPath, control.TakeSnapshot]) -> Response:
    use_cases, who = asked.platform.artifacts.snapshots, asked.caller
    record, name = await present(asked), asked.body.name
    memory = keeps_memory(asked, record, asked.body) and can_be_kept_now(record)
    wanted = Wanted(name=None if name is None else name.removesuffix(DEFAULT_TAG), memory=memory)

    async def make(bind: Bind | None) -> Snapshot:
        return await use_cases.take(record.id, wanted, who, also=bind)

    return await make_once(
        asked.request, make, use_cases.recall, lambda made: answer(snapshot_info(made), 201)
    )


async def list_snapshots(asked: AskedQuery[operations.SnapshotsQuery]) -> Response:
    query, named = asked.query, (asked.query.name or "").removesuffix(DEFAULT_TAG)
    if named.startswith(SNAPSHOT):
        return answer([snapshot_info(one) for one in await _found(asked, named)])
    sandbox_id = query.sandbox_id
    page = await asked.platform.artifacts.snapshots.list(
        asked.caller,
        sandbox_id=None if sandbox_id is None else sandbox_id.replace("sbx-", "sbx_", 1),
        name=named or None,
        cursor=query.next_token,
        limit=query.limit,
    )
    following = {} if page.next_cursor is None else {"x-next-token": page.next_cursor}
    shown = [snapshot_info(one) for one in page.records if not is_volume_id(one.sandbox_id)]
    return answer(shown, headers=following)


async def remove_template(asked: Asked[operations.TemplatePath]) -> Response:
    """Removes a snapshot by its id, or all snapshots and images that have a name: to E2B they are builds of
    one template.
    """
    name, artifacts = asked.path.template_id.removesuffix(DEFAULT_TAG), asked.platform.artifacts
    snapshots, images = await _found(asked, name), await artifacts.images.tagged(name.lower(), asked.caller)
    if not snapshots and not images:
        raise NotFound(what="template", id=name)
    for snapshot in snapshots:
        is_confirmed = await confirm_locked(asked.request, snapshot, action="drop")
        await artifacts.snapshots.drop(snapshot.id, asked.caller, despite_lock=is_confirmed)
    for image in images:
        is_confirmed = await confirm_locked(asked.request, image, action="remove")
        await artifacts.images.drop(image.id, asked.caller, despite_lock=is_confirmed)
    return Response(status_code=204)


async def fork(asked: AskedPathBody[SandboxPath, control.Fork]) -> Response:
    platform, who = asked.platform, asked.caller
    record = await present(asked)
    if any(not one.is_read_only for one in record.volumes):
        raise Conflict(
            why="it has volumes to write to, and one sandbox alone may write to a volume",
            hint="Make sandboxes of a snapshot instead, with other volumes or none.",
        )
    await pass_gate(asked.request, record.profile)
    snapshots, cloning = platform.artifacts.snapshots, platform.artifacts.cloning

    ports = platform.access.ports.previews
    every = await ports.of_every_port(record.id)
    opening = None if every is None else ports.opening(who, is_public=every.is_public, host=every.host)
    also = None if opening is None else lambda conn, _, made: opening(conn, made)
    memory = can_keep(platform.sandboxes, record) and can_be_kept_now(record)
    kept = await snapshots.take(record.id, Wanted(ttl=_PASSING, memory=memory), who)
    try:
        batch = Batch(count=asked.body.count, also=also)
        made = await cloning.clone(kept.id, _like(record, asked.body.timeout), who, batch)
    finally:
        await snapshots.drop(kept.id, who)
    left, forks = list(made.sandboxes), [_failed(asked.request, error) for error in made.failed.values()]
    try:
        while left:
            forks.append(await _begun(asked, record, left[0], goes_on=memory))
            left.pop(0)
    finally:
        # They have begun nothing, and may reach more than the original.
        for one in left:
            await to_the_end(lifetime.destroy(platform.sandboxes, one.id, who))
    forks.sort(key=lambda one: one.sandbox is None)
    return answer(forks, 201)


async def _begun(
    asked: AskedPathBody[SandboxPath, control.Fork], original: Sandbox, made: Sandbox, *, goes_on: bool
) -> control.Forked:
    """Lets a fork begin as its original does, unless it goes on where that was. One that does not is gone."""
    platform, who = asked.platform, asked.caller
    try:
        await _narrow(platform, original, made, who)
        if not goes_on:
            await begin(platform, made, who, asked.lease)
    except SandboxerError as error:
        await to_the_end(lifetime.destroy(platform.sandboxes, made.id, who))
        return _failed(asked.request, error)
    return control.Forked.model_construct(sandbox=opened(platform, made, who))


async def _narrow(platform: Platform, original: Sandbox, made: Sandbox, who: Caller) -> None:
    """Gives a fork the rules that the original has got since it was made."""
    try:
        kept = (await platform.access.egress.show(original.id, who)).policy
    except Conflict:
        # It has no way out.
        return
    if kept.version > 1:
        await platform.access.egress.change(made.id, who, lambda _: kept.policy)


def _like(record: Sandbox, timeout: int) -> CreateRequest:
    """Returns the request for one that is as this one; what is on its disk comes from the snapshot."""
    return CreateRequest(
        profile=record.profile,
        trust=record.trust.value,
        network=record.network,
        env=record.env,
        labels=record.labels,
        ttl=f"{timeout}s",
        volumes=record.volumes,
        at_end=record.at_end,
        wishes=Wishes(memory_at_end=record.promises.memory_at_end),
    )


def _failed(request: Request, error: SandboxerError) -> control.Forked:
    problem = problems.model_of(request, error).model_dump()
    why = control.Refusal.model_construct(code=status_of(problem), message=message_of(problem))
    return control.Forked.model_construct(error=why)


async def _found(
    asked: Asked[operations.TemplatePath] | AskedQuery[operations.SnapshotsQuery], name: str
) -> list[Snapshot]:
    """Returns the snapshot of this id, or the caller's own of this name."""
    use_cases = asked.platform.artifacts.snapshots
    if not name.startswith(SNAPSHOT):
        return list((await use_cases.list(asked.caller, name=name, limit=500)).records)
    try:
        one = await use_cases.get(name, asked.caller)
    except NotFound:
        return []
    return [] if one.state in OVER or is_volume_id(one.sandbox_id) else [one]


BINDINGS = (
    bind(operations.TAKE_SNAPSHOT, take_snapshot),
    bind(operations.SNAPSHOTS, list_snapshots),
    bind(operations.REMOVE_TEMPLATE, remove_template),
    bind(operations.FORK, fork),
)
