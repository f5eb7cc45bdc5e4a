"""`client.keys` and `client.host`: what the platform's owner looks after, with asyncio.

`client.status`: how the platform is, and what the caller may still do, with asyncio.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.calls import keys, platform, sandboxes
from sandboxer.wire.keys import DelegatedKey, Key, KeyNode, KeyReport, NewDelegatedKey, NewKey
from sandboxer.wire.platform import Cluster, Collected, Garbage, Health, Host, Limits, Pools, Stats
from sandboxer.wire.sandboxes import Expired, Reaped, Stale


class AsyncKeys:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def list(self) -> Sequence[Key]:
        return (await self._line.send(keys.list_keys())).keys

    async def create(self, name: str, account: str, *, accepts_v1: bool = False) -> NewKey:
        """Makes a key. Its secret is shown at this moment only."""
        return await self._line.send(keys.create_key(name=name, account=account, accepts_v1=accepts_v1))

    async def revoke(self, public_key: str) -> None:
        await self._line.send(keys.revoke_key(public_key))

    async def cut(self, name: str, scopes: Sequence[str], **wish: Any) -> NewDelegatedKey:
        """A child key: `budget_sats`, `depth`, `slots`, `expires_at`, `caps`."""
        return await self._line.send(keys.cut_key(name=name, scopes=scopes, **wish))

    async def top_up(self, public_key: str, sats: int, *, id: str) -> DelegatedKey:
        """Give a child key more sats; the same id gives once."""
        return await self._line.send(keys.top_up_key(public_key, sats=sats, id=id))

    async def tree(self) -> KeyNode:
        return await self._line.send(keys.show_key_tree())

    async def regenerate(self, public_key: str) -> NewKey:
        """Makes a new secret; the old one ends at once."""
        return await self._line.send(keys.regenerate_key(public_key))

    async def suspend(self, public_key: str, *, why: str) -> None:
        await self._line.send(keys.suspend_key(public_key, why=why))

    async def unsuspend(self, public_key: str) -> None:
        await self._line.send(keys.unsuspend_key(public_key))

    async def set_expiry(self, public_key: str, expires_at: str | None) -> None:
        await self._line.send(keys.set_key_expiry(public_key, expires_at=expires_at))

    async def validate(self, public_key: str) -> KeyReport:
        return await self._line.send(keys.validate_key(public_key=public_key))


class AsyncHostView:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def report(self) -> Host:
        return await self._line.send(platform.inspect_host())

    async def stale(self) -> list[Stale]:
        """Lists what no record accounts for."""
        return (await self._line.send(platform.list_stale())).stale

    async def reap_stale(self) -> Reaped:
        return await self._line.send(platform.reap_stale())

    async def garbage(self) -> Garbage:
        """Lists what nobody needs any more, and when it goes."""
        return await self._line.send(platform.list_garbage())

    async def collect_garbage(self, *, now: bool = False) -> Collected:
        """`now`: also what is still in its time of grace."""
        return await self._line.send(platform.collect_garbage(now=now))

    async def expire(self, *, apply: bool = False) -> Expired:
        return await self._line.send(sandboxes.expire_sandboxes(apply=apply))


class AsyncStatus:
    def __init__(self, line: AsyncLine) -> None:
        self._line = line

    async def health(self) -> Health:
        return await self._line.send(platform.health())

    async def cluster(self) -> Cluster:
        """Hosts, what they can do, and how much is free."""
        return await self._line.send(platform.show_cluster())

    async def pools(self) -> Pools:
        return await self._line.send(platform.list_pools())

    async def stats(self) -> Stats:
        """Counts of one's own; of everyone for the owner."""
        return await self._line.send(platform.show_stats())

    async def limits(self) -> Limits:
        """Says what this key may still do."""
        return await self._line.send(platform.show_limits())
