"""Routes of snapshots: keep a sandbox's disk, restore it, fork from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from starlette.responses import Response

from sandboxer.artifacts.clones import Batch
from sandboxer.artifacts.snapshots import records
from sandboxer.artifacts.snapshots.lifecycle import State
from sandboxer.artifacts.snapshots.records import flattened
from sandboxer.artifacts.snapshots.use_cases import Wanted
from sandboxer.backends.contract import KeptSizes
from sandboxer.edges.http import answers, problems
from sandboxer.edges.http.answers import json_response
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.http.demands import confirm_locked, pass_gate
from sandboxer.edges.http.idempotency import Bind, BindOne, once_bound, once_many
from sandboxer.edges.http.matcher import Binding
from sandboxer.edges.http.requests import copy_request, labels_of, mounts
from sandboxer.kernel.ids import is_volume_id
from sandboxer.sandboxes.use_cases.locks import is_guarded
from sandboxer.wire.operations import snapshots as operations
from sandboxer.wire.operations.declaration import NoParameters
from sandboxer.wire.operations.paths import SandboxPath, SnapshotPath
from sandboxer.wire.operations.snapshots import ListSnapshotsQuery
from sandboxer.wire.sandboxes import Resources, Sandbox
from sandboxer.wire.snapshots import (
    ChangeSnapshot,
    Clones,
    CloneSnapshot,
    FailedClone,
    Snapshot,
    SnapshotLine,
    SnapshotPage,
    SnapshotTree,
    TakeSnapshot,
)


async def take(asked: Asked[SandboxPath, NoParameters, TakeSnapshot]) -> Response:
    use_cases, who = asked.platform.artifacts.snapshots, asked.caller
    wanted = Wanted(name=asked.body.name, ttl=asked.body.ttl, labels=asked.body.labels)

    async def act(bind: Bind | None) -> Response:
        return taken_snapshot(await use_cases.take(asked.path.sandbox_id, wanted, who, also=bind))

    async def recall(snapshot_id: str) -> Response | None:
        made = await use_cases.recall(snapshot_id, who)
        return None if made is None else taken_snapshot(made)

    return await once_bound(asked.request, act, recall=recall)


async def list_snapshots(asked: Asked[NoParameters, ListSnapshotsQuery, None]) -> SnapshotPage:
    page = await asked.platform.artifacts.snapshots.list(
        asked.caller,
        sandbox_id=asked.query.volume_id or asked.query.sandbox_id,
        state=None if asked.query.state is None else State(asked.query.state),
        labels=labels_of(asked.query.label),
        cursor=asked.query.cursor,
        limit=asked.query.limit,
    )
    shown = [shown_snapshot(record) for record in page.records]
    return SnapshotPage.model_construct(snapshots=shown, next_cursor=page.next_cursor)


async def tree(asked: Asked[NoParameters, NoParameters, None]) -> SnapshotTree:
    artifacts, who = asked.platform.artifacts, asked.caller
    grown = await artifacts.snapshots.tree(who, volumes=await artifacts.volumes.descent(who))
    lines = [
        SnapshotLine.model_construct(
            id=branch.snapshot.id,
            parent_id=branch.snapshot.parent_id if depth else None,
            depth=depth,
            name=branch.snapshot.name,
            state=branch.snapshot.state.value,
            **_source(branch.snapshot),
            size_bytes=branch.snapshot.size_bytes,
            created_at=branch.snapshot.created_at,
            locked_at=branch.snapshot.locked_at,
            sandbox_ids=list(branch.sandbox_ids),
            volume_ids=list(branch.volume_ids),
        )
        for depth, branch in flattened(grown)
    ]
    return SnapshotTree.model_construct(lines=lines)


async def get(asked: Asked[SnapshotPath, NoParameters, None]) -> Snapshot:
    use_cases = asked.platform.artifacts.snapshots
    found = await use_cases.get(asked.path.snapshot_id, asked.caller)
    return shown_snapshot(found, await use_cases.sizes(found))


async def change(asked: Asked[SnapshotPath, NoParameters, ChangeSnapshot]) -> Snapshot:
    changed = await asked.platform.artifacts.snapshots.change(
        asked.path.snapshot_id,
        asked.caller,
        name=asked.body.name,
        labels=asked.body.labels,
        ttl=asked.body.ttl,
    )
    return shown_snapshot(changed)


async def drop(asked: Asked[SnapshotPath, NoParameters, None]) -> Snapshot:
    use_cases, who = asked.platform.artifacts.snapshots, asked.caller
    found = await use_cases.get(asked.path.snapshot_id, who)
    is_confirmed = await confirm_locked(asked.request, found, action="drop")
    dropped = await use_cases.drop(asked.path.snapshot_id, who, despite_lock=is_confirmed)
    return shown_snapshot(dropped)


async def restore(asked: Asked[SnapshotPath, NoParameters, None]) -> Sandbox:
    use_cases, who = asked.platform.artifacts.snapshots, asked.caller
    found = await use_cases.get(asked.path.snapshot_id, who)
    sandbox = await use_cases.source(found, who)
    is_confirmed = is_guarded(sandbox) and await confirm_locked(asked.request, sandbox, action="restore")
    restored = await use_cases.restore(asked.path.snapshot_id, who, despite_lock=is_confirmed)
    return answers.sandbox(restored)


async def clone(asked: Asked[SnapshotPath, NoParameters, CloneSnapshot]) -> Response:
    artifacts, who = asked.platform.artifacts, asked.caller

    async def act(begun: Mapping[int, str], bind: BindOne | None) -> Response:
        given = replace(copy_request(asked.body), volumes=await mounts(asked.request, asked.body.volumes))
        wanted = await artifacts.cloning.request_for(asked.path.snapshot_id, given, who)
        await pass_gate(asked.request, wanted.profile)
        batch = Batch(count=asked.body.count, begun=begun, also=bind)
        made = await artifacts.cloning.clone(asked.path.snapshot_id, wanted, who, batch)
        failed = [
            FailedClone.model_construct(number=number, problem=problems.model_of(asked.request, error))
            for number, error in made.failed.items()
        ]
        shown = [answers.sandbox(each) for each in made.sandboxes]
        left_out = [answers.attached_volume(one) for one in made.volumes_left_out]
        answer = Clones.model_construct(sandboxes=shown, failed=failed, volumes_left_out=left_out)
        return json_response(answer, 201)

    return await once_many(asked.request, act)


async def lock(asked: Asked[SnapshotPath, NoParameters, None]) -> Snapshot:
    platform, who = asked.platform, asked.caller
    found = await platform.artifacts.snapshots.get(asked.path.snapshot_id, who)
    # Otherwise nobody could unlock it again.
    await platform.wallets.second_proofs.demand_two(found.account)
    return shown_snapshot(await platform.artifacts.snapshots.lock(asked.path.snapshot_id, who))


async def unlock(asked: Asked[SnapshotPath, NoParameters, None]) -> Snapshot:
    use_cases, who = asked.platform.artifacts.snapshots, asked.caller
    await confirm_locked(asked.request, await use_cases.get(asked.path.snapshot_id, who), action="unlock")
    unlocked = await use_cases.unlock(asked.path.snapshot_id, who)
    return shown_snapshot(unlocked)


def shown_snapshot(record: records.Snapshot, sizes: KeptSizes | None = None) -> Snapshot:
    return Snapshot.model_construct(
        id=record.id,
        name=record.name,
        state=record.state.value,
        reason=record.reason,
        **_source(record),
        parent_id=record.parent_id,
        content=record.content.value,
        backend=record.backend,
        image=record.image,
        profile=record.profile,
        resources=Resources.model_construct(
            vcpus=record.resources.vcpus,
            memory_mb=record.resources.memory_mb,
            disk_mb=record.resources.disk_mb,
            pids=record.resources.pids,
        ),
        labels=dict(record.labels),
        size_bytes=record.size_bytes if sizes is None else sizes.referenced_bytes,
        size_is_exact=record.is_measured or sizes is not None,
        exclusive_bytes=None if sizes is None else sizes.exclusive_bytes,
        rate_msats_per_s=record.rate_msats if record.state is State.KEPT else 0,
        created_at=record.created_at,
        expires_at=record.expires_at,
        ended_at=record.ended_at,
        locked_at=record.locked_at,
        took_ms=dict(record.took_ms),
    )


def _source(record: records.Snapshot) -> dict[str, Any]:
    is_volume = is_volume_id(record.sandbox_id)
    return {
        "sandbox_id": None if is_volume else record.sandbox_id,
        "volume_id": record.sandbox_id if is_volume else None,
    }


def taken_snapshot(made: records.Snapshot) -> Response:
    answer = json_response(shown_snapshot(made), 201)
    answer.headers["location"] = f"/v1/snapshots/{made.id}"
    return answer


BINDINGS: tuple[Binding, ...] = (
    bind(operations.TAKE_SNAPSHOT, take),
    bind(operations.LIST_SNAPSHOTS, list_snapshots),
    bind(operations.GET_SNAPSHOT_TREE, tree),
    bind(operations.GET_SNAPSHOT, get),
    bind(operations.CHANGE_SNAPSHOT, change),
    bind(operations.DROP_SNAPSHOT, drop),
    bind(operations.RESTORE_SNAPSHOT, restore),
    bind(operations.CLONE_SNAPSHOT, clone),
    bind(operations.LOCK_SNAPSHOT, lock),
    bind(operations.UNLOCK_SNAPSHOT, unlock),
)
