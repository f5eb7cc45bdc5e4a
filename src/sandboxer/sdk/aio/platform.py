"""`client.keys` and `client.host`: what the platform's owner looks after, with asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.routes import platform as routes
from sandboxer.wire.host import Collected, Garbage, Host
from sandboxer.wire.keys import Key, KeyNode, KeyReport, NewDelegatedKey, NewKey
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

    async def cut(self, name: str, scopes: Sequence[str], **wish: Any) -> NewDelegatedKey:
        """A child key: `budget_sats`, `depth`, `slots`, `expires_at`, `caps`."""
        return await self._line.do(routes.cut_key({"name": name, "scopes": [*scopes], **wish}))

    async def tree(self) -> KeyNode:
        return await self._line.do(routes.key_tree())

    async def regenerate(self, public_key: str) -> NewKey:
        """A new secret; the old one ends at once."""
        return await self._line.do(routes.regenerate_key(public_key))

    async def suspend(self, public_key: str, *, why: str) -> None:
        await self._line.do(routes.suspend_key(public_key, why=why))

    async def unsuspend(self, public_key: str) -> None:
        await self._line.do(routes.unsuspend_key(public_key))

    async def set_expiry(self, public_key: str, expires_at: str | None) -> None:
        await self._line.do(routes.set_key_expiry(public_key, expires_at))

    async def validate(self, public_key: str) -> KeyReport:
        return await self._line.do(routes.validate_key(public_key))


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

    async def garbage(self) -> Garbage:
        """What nobody needs any more, and when it goes."""
        return await self._line.do(routes.garbage())

    async def collect_garbage(self, *, now: bool = False) -> Collected:
        """`now`: also what is still in its time of grace."""
        return await self._line.do(routes.collect_garbage(now=now))

    async def expire(self, *, apply: bool = False) -> Expired:
        return await self._line.do(routes.expire(apply=apply))
