"""`client.snapshots`: keep a sandbox's disk, go back to it, fork from it, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import snapshots as routes
from sandboxer.sdk.routes.sandboxes import VolumesIn, volumes_in
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
        """Its disk as it is now; whatever runs goes on."""
        return await self._line.do(routes.take(sandbox_id, name=name, ttl=ttl, labels=labels))

    async def list(
        self,
        *,
        sandbox_id: str | None = None,
        state: str | None = None,
        labels: Mapping[str, str] | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[wire.Snapshot]:
        """All of them, newest first, page by page; `limit` is the size of a page."""
        cursor: str | None = None
        while True:
            call = routes.page(sandbox_id=sandbox_id, state=state, labels=labels, cursor=cursor, limit=limit)
            page = await self._line.do(call)
            for found in page.snapshots:
                yield found
            cursor = page.next_cursor
            if cursor is None:
                return

    async def tree(self) -> Sequence[wire.SnapshotLine]:
        """What came from what, parents before children."""
        return (await self._line.do(routes.tree())).lines

    async def get(self, snapshot_id: str) -> wire.Snapshot:
        """With its exact size, which may take a while for one with very many files."""
        return await self._line.do(routes.get(snapshot_id))

    async def change(
        self,
        snapshot_id: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: str | None = None,
    ) -> wire.Snapshot:
        return await self._line.do(routes.change(snapshot_id, name=name, labels=labels, ttl=ttl))

    async def restore(self, snapshot_id: str) -> Sandbox:
        """Its sandbox's disk becomes what it was; what is on it now is lost."""
        return await self._line.do(routes.restore(snapshot_id))

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
        """New sandboxes that begin as it was; `failed` says which of them could not be made."""
        wanted = {"count": count, "name": name, "profile": profile, "trust": trust, "ttl": ttl}
        more: dict[str, Any] = {
            "idle_timeout": idle_timeout,
            "resources": resources,
            "env": env,
            "labels": labels,
        }
        more |= {"volumes": volumes_in(volumes)}
        return await self._line.do(routes.clone(snapshot_id, {**wanted, **more}))

    async def lock(self, snapshot_id: str) -> wire.Snapshot:
        """From now on dropping and unlocking it need a second proof (`confirm`)."""
        return await self._line.do(routes.guard(snapshot_id, "lock"))

    async def unlock(self, snapshot_id: str) -> wire.Snapshot:
        return await self._line.do(routes.guard(snapshot_id, "unlock"))

    async def remove(self, snapshot_id: str) -> wire.Snapshot:
        """Gone already is success; what was made from it stays."""
        return await self._line.do(routes.remove(snapshot_id))
