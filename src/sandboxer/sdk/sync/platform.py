# Written by scripts/generate-sync from sdk/aio/platform.py. Do not edit.
"""`client.keys` and `client.host`: what the platform's owner looks after, blocking.

`client.status`: how the platform is, and what the caller may still do, blocking.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandboxer.sdk.calls import keys, platform, sandboxes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire.keys import DelegatedKey, Key, KeyNode, KeyReport, NewDelegatedKey, NewKey
from sandboxer.wire.platform import Cluster, Collected, Garbage, Health, Host, Limits, Pools, Stats
from sandboxer.wire.sandboxes import Expired, Reaped, Stale


class Keys:
    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self) -> Sequence[Key]:
        return self._line.send(keys.list_keys()).keys

    def create(self, name: str, account: str, *, accepts_v1: bool = False) -> NewKey:
        """Makes a key. Its secret is shown at this moment only."""
        return self._line.send(keys.create_key(name=name, account=account, accepts_v1=accepts_v1))

    def revoke(self, public_key: str) -> None:
        self._line.send(keys.revoke_key(public_key))

    def cut(self, name: str, scopes: Sequence[str], **wish: Any) -> NewDelegatedKey:
        """A child key: `budget_sats`, `depth`, `slots`, `expires_at`, `caps`."""
        return self._line.send(keys.cut_key(name=name, scopes=scopes, **wish))

    def top_up(self, public_key: str, sats: int, *, id: str) -> DelegatedKey:
        """Give a child key more sats; the same id gives once."""
        return self._line.send(keys.top_up_key(public_key, sats=sats, id=id))

    def tree(self) -> KeyNode:
        return self._line.send(keys.show_key_tree())

    def regenerate(self, public_key: str) -> NewKey:
        """Makes a new secret; the old one ends at once."""
        return self._line.send(keys.regenerate_key(public_key))

    def suspend(self, public_key: str, *, why: str) -> None:
        self._line.send(keys.suspend_key(public_key, why=why))

    def unsuspend(self, public_key: str) -> None:
        self._line.send(keys.unsuspend_key(public_key))

    def set_expiry(self, public_key: str, expires_at: str | None) -> None:
        self._line.send(keys.set_key_expiry(public_key, expires_at=expires_at))

    def validate(self, public_key: str) -> KeyReport:
        return self._line.send(keys.validate_key(public_key=public_key))


class HostView:
    def __init__(self, line: Line) -> None:
        self._line = line

    def report(self) -> Host:
        return self._line.send(platform.inspect_host())

    def stale(self) -> list[Stale]:
        """Lists what no record accounts for."""
        return self._line.send(platform.list_stale()).stale

    def reap_stale(self) -> Reaped:
        return self._line.send(platform.reap_stale())

    def garbage(self) -> Garbage:
        """Lists what nobody needs any more, and when it goes."""
        return self._line.send(platform.list_garbage())

    def collect_garbage(self, *, now: bool = False) -> Collected:
        """`now`: also what is still in its time of grace."""
        return self._line.send(platform.collect_garbage(now=now))

    def expire(self, *, apply: bool = False) -> Expired:
        return self._line.send(sandboxes.expire_sandboxes(apply=apply))


class Status:
    def __init__(self, line: Line) -> None:
        self._line = line

    def health(self) -> Health:
        return self._line.send(platform.health())

    def cluster(self) -> Cluster:
        """Hosts, what they can do, and how much is free."""
        return self._line.send(platform.show_cluster())

    def pools(self) -> Pools:
        return self._line.send(platform.list_pools())

    def stats(self) -> Stats:
        """Counts of one's own; of everyone for the owner."""
        return self._line.send(platform.show_stats())

    def limits(self) -> Limits:
        """Says what this key may still do."""
        return self._line.send(platform.show_limits())
