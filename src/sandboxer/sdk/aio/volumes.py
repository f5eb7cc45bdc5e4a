"""`client.volumes`: disks that outlive sandboxes, with asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import volumes as routes
from sandboxer.wire import volumes as wire
from sandboxer.wire.snapshots import Snapshot


class AsyncVolumes:
    """Each is named by its id or its name. Attach one with `create(volumes=[…])`."""

    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def create(
        self,
        name: str,
        *,
        size_mb: int | None = None,
        from_snapshot: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> wire.Volume:
        """Empty, or a copy of a volume's snapshot."""
        wanted = {"name": name, "size_mb": size_mb, "from_snapshot": from_snapshot, "labels": labels}
        return await self._line.do(routes.create(wanted))

    async def list(self, *, state: str | None = None, limit: int | None = None) -> AsyncIterator[wire.Volume]:
        """All of them, page by page; `limit` is the size of a page."""
        cursor: str | None = None
        while True:
            page = await self._line.do(routes.page(state=state, cursor=cursor, limit=limit))
            for found in page.volumes:
                yield found
            cursor = page.next_cursor
            if cursor is None:
                return

    async def get(self, volume: str) -> wire.Volume:
        return await self._line.do(routes.get(volume))

    async def change(
        self,
        volume: str,
        *,
        name: str | None = None,
        size_mb: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> wire.Volume:
        """What is left out stays as it is."""
        return await self._line.do(routes.change(volume, name=name, size_mb=size_mb, labels=labels))

    async def snapshot(
        self,
        volume: str,
        *,
        name: str | None = None,
        ttl: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """Keep it as it is now; whoever writes to it goes on."""
        return await self._line.do(routes.take(volume, name=name, ttl=ttl, labels=labels))

    async def restore(self, volume: str, snapshot: str) -> wire.Volume:
        """Put it back to what the snapshot has; what is on it now is lost. Refused while it is in use."""
        return await self._line.do(routes.restore(volume, snapshot))

    async def lock(self, volume: str) -> wire.Volume:
        return await self._line.do(routes.guard(volume, "lock"))

    async def unlock(self, volume: str) -> wire.Volume:
        return await self._line.do(routes.guard(volume, "unlock"))

    async def remove(self, volume: str) -> wire.Volume:
        """All that is on it is lost."""
        return await self._line.do(routes.remove(volume))
