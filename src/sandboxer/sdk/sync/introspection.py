"""`client.status`: how the platform is, and what the caller may still do, blocking."""

from __future__ import annotations

from sandboxer.sdk.routes import introspection as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire.host import Health
from sandboxer.wire.introspection import Cluster, Limits, Pools, Stats


class Status:
    def __init__(self, line: Line) -> None:
        self._line = line

    def health(self) -> Health:
        return self._line.do(routes.health())

    def cluster(self) -> Cluster:
        """Hosts, what they can do, and how much is free."""
        return self._line.do(routes.cluster())

    def pools(self) -> Pools:
        return self._line.do(routes.pools())

    def stats(self) -> Stats:
        """Counts of one's own; of everyone for the owner."""
        return self._line.do(routes.stats())

    def limits(self) -> Limits:
        """What this key may still do."""
        return self._line.do(routes.limits())
