"""`client.status`: how the platform is, and what the caller may still do, with asyncio."""

from __future__ import annotations

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import introspection as routes
from sandboxer.wire.host import Health
from sandboxer.wire.introspection import Cluster, Limits, Pools, Stats


class AsyncStatus:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def health(self) -> Health:
        return await self._line.do(routes.health())

    async def cluster(self) -> Cluster:
        """Hosts, what they can do, and how much is free."""
        return await self._line.do(routes.cluster())

    async def pools(self) -> Pools:
        return await self._line.do(routes.pools())

    async def stats(self) -> Stats:
        """Counts of one's own; of everyone for the owner."""
        return await self._line.do(routes.stats())

    async def limits(self) -> Limits:
        """What this key may still do."""
        return await self._line.do(routes.limits())
