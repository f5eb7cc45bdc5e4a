"""`client.snapshots`: keep a sandbox's disk, go back to it, fork from it, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from sandboxer.sdk.aio.line import AsyncLine, pages
from sandboxer.sdk.bodies import VolumesIn, labelled
from sandboxer.sdk.call import new_idempotency_key
from sandboxer.sdk.calls import snapshots as calls
from sandboxer.wire import snapshots as wire
from sandboxer.wire.sandboxes import Sandbox


class AsyncSnapshots:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def take(
        self,
        sandbox_id: str,
        *,
        name: str | None = None,
        ttl: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> wire.Snapshot:
        """Keeps the disk as it is now; whatever runs goes on."""
        call = calls.take_snapshot(
            sandbox_id, name=name, ttl=ttl, labels=labels, idempotency_key=new_idempotency_key()
        )
        return await self._line.send(call)

    async def list(
        self,
        *,
        sandbox_id: str | None = None,
        state: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[wire.Snapshot]:
        """Yields all of them, newest first, page by page; `limit` is the size of a page."""
        label = labelled(labels)
        async for page in pages(
            self._line,
            lambda cursor: calls.list_snapshots(
                sandbox_id=sandbox_id, state=state, label=label, cursor=cursor, limit=limit
            ),
        ):
            for found in page.snapshots:
                yield found

    async def tree(self) -> Sequence[wire.SnapshotLine]:
        """Says what came from what, parents before children."""
        return (await self._line.send(calls.get_snapshot_tree())).lines

    async def get(self, snapshot_id: str) -> wire.Snapshot:
        """With its exact size, which may take a while for one with very many files."""
        return await self._line.send(calls.get_snapshot(snapshot_id))

    async def change(
        self,
        snapshot_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: str | None = None,
    ) -> wire.Snapshot:
        return await self._line.send(calls.change_snapshot(snapshot_id, name=name, labels=labels, ttl=ttl))

    async def restore(self, snapshot_id: str) -> Sandbox:
        """Puts its sandbox's disk back to what it was; what is on it now is lost."""
        return await self._line.send(calls.restore_snapshot(snapshot_id))

    async def clone(
        self,
        snapshot_id: str,
        *,
        count: int = 1,
        name: str | None = None,
        profile: str | None = None,
        trust: str | None = None,
        ttl: str | None = None,
        idle_timeout: str | None = None,
        resources: Mapping[str, float] | None = None,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        volumes: VolumesIn | None = None,
    ) -> wire.Clones:
        """Makes sandboxes that begin as it was; `failed` says which of them could not be made."""
        call = calls.clone_snapshot(
            snapshot_id,
            count=count,
            name=name,
            profile=profile,
            trust=trust,
            ttl=ttl,
            idle_timeout=idle_timeout,
            resources=resources,
            env=env,
            labels=labels,
            volumes=volumes,
            idempotency_key=new_idempotency_key(),
        )
        return await self._line.send(call)

    async def lock(self, snapshot_id: str) -> wire.Snapshot:
        """From now on dropping and unlocking it need a second proof (`confirm`)."""
        return await self._line.send(calls.lock_snapshot(snapshot_id))

    async def unlock(self, snapshot_id: str) -> wire.Snapshot:
        return await self._line.send(calls.unlock_snapshot(snapshot_id))

    async def remove(self, snapshot_id: str) -> wire.Snapshot:
        """Removes it; gone already is success. What was made from it stays."""
        return await self._line.send(calls.drop_snapshot(snapshot_id))
