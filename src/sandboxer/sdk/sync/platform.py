"""`client.keys` and `client.host`: what the platform's owner looks after, blocking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sandboxer.sdk.routes import platform as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire.host import Collected, Garbage, Host
from sandboxer.wire.keys import Key, KeyNode, KeyReport, NewDelegatedKey, NewKey
from sandboxer.wire.sandboxes import Expired, Reaped, Stale


class Keys:
    def __init__(self, line: Line) -> None:
        self._line = line

    def list(self) -> Sequence[Key]:
        return self._line.do(routes.keys()).keys

    def create(self, name: str, account: str, *, accepts_v1: bool = False) -> NewKey:
        """The only moment at which the secret is shown."""
        return self._line.do(routes.create_key(name, account, accepts_v1=accepts_v1))

    def revoke(self, public_key: str) -> None:
        self._line.do(routes.revoke_key(public_key))

    def cut(self, name: str, scopes: Sequence[str], **wish: Any) -> NewDelegatedKey:
        """A child key: `budget_sats`, `depth`, `slots`, `expires_at`, `caps`."""
        return self._line.do(routes.cut_key({"name": name, "scopes": [*scopes], **wish}))

    def tree(self) -> KeyNode:
        return self._line.do(routes.key_tree())

    def regenerate(self, public_key: str) -> NewKey:
        """A new secret; the old one ends at once."""
        return self._line.do(routes.regenerate_key(public_key))

    def suspend(self, public_key: str, *, why: str) -> None:
        self._line.do(routes.suspend_key(public_key, why=why))

    def unsuspend(self, public_key: str) -> None:
        self._line.do(routes.unsuspend_key(public_key))

    def set_expiry(self, public_key: str, expires_at: str | None) -> None:
        self._line.do(routes.set_key_expiry(public_key, expires_at))

    def validate(self, public_key: str) -> KeyReport:
        return self._line.do(routes.validate_key(public_key))


class HostView:
    def __init__(self, line: Line) -> None:
        self._line = line

    def report(self) -> Host:
        return self._line.do(routes.host())

    def stale(self) -> list[Stale]:
        """What no record accounts for."""
        return self._line.do(routes.stale()).stale

    def reap_stale(self) -> Reaped:
        return self._line.do(routes.reap_stale())

    def garbage(self) -> Garbage:
        """What nobody needs any more, and when it goes."""
        return self._line.do(routes.garbage())

    def collect_garbage(self, *, now: bool = False) -> Collected:
        """`now`: also what is still in its time of grace."""
        return self._line.do(routes.collect_garbage(now=now))

    def expire(self, *, apply: bool = False) -> Expired:
        return self._line.do(routes.expire(apply=apply))
