"""`client.keys` and `client.host`: what the platform's owner looks after, blocking."""

from __future__ import annotations

from collections.abc import Sequence

from sandboxer.sdk.routes import platform as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire.host import Host
from sandboxer.wire.keys import Key, NewKey
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

    def expire(self, *, apply: bool = False) -> Expired:
        return self._line.do(routes.expire(apply=apply))
