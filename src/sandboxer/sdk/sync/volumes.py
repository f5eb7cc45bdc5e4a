"""`client.volumes`: disks that outlive sandboxes, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandboxer.sdk.routes import volumes as routes
from sandboxer.sdk.sync.line import Line
from sandboxer.wire import volumes as wire
from sandboxer.wire.snapshots import Snapshot


class Volumes:
    """Each is named by its id or its name. Attach one with `create(volumes=[…])`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def create(
        self,
        name: str,
        *,
        size_mb: int | None = None,
        from_snapshot: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> wire.Volume:
        """Empty, or a copy of a volume's snapshot."""
        wanted = {"name": name, "size_mb": size_mb, "from_snapshot": from_snapshot, "labels": labels}
        return self._line.do(routes.create(wanted))

    def list(self, *, state: str | None = None, limit: int | None = None) -> Iterator[wire.Volume]:
        """All of them, page by page; `limit` is the size of a page."""
        cursor: str | None = None
        while True:
            page = self._line.do(routes.page(state=state, cursor=cursor, limit=limit))
            yield from page.volumes
            cursor = page.next_cursor
            if cursor is None:
                return

    def get(self, volume: str) -> wire.Volume:
        return self._line.do(routes.get(volume))

    def change(
        self,
        volume: str,
        *,
        name: str | None = None,
        size_mb: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> wire.Volume:
        """What is left out stays as it is."""
        return self._line.do(routes.change(volume, name=name, size_mb=size_mb, labels=labels))

    def snapshot(
        self,
        volume: str,
        *,
        name: str | None = None,
        ttl: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """Keep it as it is now; whoever writes to it goes on."""
        return self._line.do(routes.take(volume, name=name, ttl=ttl, labels=labels))

    def restore(self, volume: str, snapshot: str) -> wire.Volume:
        """Put it back to what the snapshot has; what is on it now is lost. Refused while it is in use."""
        return self._line.do(routes.restore(volume, snapshot))

    def lock(self, volume: str) -> wire.Volume:
        return self._line.do(routes.guard(volume, "lock"))

    def unlock(self, volume: str) -> wire.Volume:
        return self._line.do(routes.guard(volume, "unlock"))

    def remove(self, volume: str) -> wire.Volume:
        """All that is on it is lost."""
        return self._line.do(routes.remove(volume))
