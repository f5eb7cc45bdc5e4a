"""`client.keys` and `client.host`: what the platform's owner looks after, with asyncio."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import platform as routes
from sandboxer.wire.host import Host
from sandboxer.wire.keys import Key, NewKey
from sandboxer.wire.sandboxes import Expired, Reaped, Stale


class AsyncKeys:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def list(self) -> Sequence[Key]:
        return (await self._line.do(routes.keys())).keys

    async def create(self, name: str, account: str, *, accepts_v1: bool = False) -> NewKey:
        """The only moment at which the secret is shown."""
        return await self._line.do(routes.create_key(name, account, accepts_v1=accepts_v1))

    async def revoke(self, public_key: str) -> None:
        await self._line.do(routes.revoke_key(public_key))


class AsyncHostView:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def report(self) -> Host:
        return await self._line.do(routes.host())

    async def stale(self) -> list[Stale]:
        """What no record accounts for."""
        return (await self._line.do(routes.stale())).stale

    async def reap_stale(self) -> Reaped:
        return await self._line.do(routes.reap_stale())

    async def expire(self, *, apply: bool = False) -> Expired:
        return await self._line.do(routes.expire(apply=apply))
