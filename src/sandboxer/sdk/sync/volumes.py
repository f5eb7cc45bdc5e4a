# Written by scripts/generate-sync from sdk/aio/volumes.py. Do not edit.
"""`client.volumes`: disks that outlive sandboxes, blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sandboxer.sdk.call import new_idempotency_key
from sandboxer.sdk.calls import volumes as calls
from sandboxer.sdk.sync.line import Line, pages
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
        call = calls.create_volume(
            name=name,
            size_mb=size_mb,
            from_snapshot=from_snapshot,
            labels=labels,
            idempotency_key=new_idempotency_key(),
        )
        return self._line.send(call)

    def list(self, *, state: str | None = None, limit: int | None = None) -> Iterator[wire.Volume]:
        """Yields all of them, page by page; `limit` is the size of a page."""
        for page in pages(
            self._line, lambda cursor: calls.list_volumes(state=state, cursor=cursor, limit=limit)
        ):
            yield from page.volumes

    def get(self, volume: str) -> wire.Volume:
        return self._line.send(calls.get_volume(volume))

    def change(
        self,
        volume: str,
        *,
        name: str | None = None,
        size_mb: int | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> wire.Volume:
        """What is left out stays as it is."""
        return self._line.send(calls.change_volume(volume, name=name, size_mb=size_mb, labels=labels))

    def snapshot(
        self,
        volume: str,
        *,
        name: str | None = None,
        ttl: str | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Snapshot:
        """Keep it as it is now; whoever writes to it goes on."""
        call = calls.take_volume_snapshot(
            volume, name=name, ttl=ttl, labels=labels, idempotency_key=new_idempotency_key()
        )
        return self._line.send(call)

    def restore(self, volume: str, snapshot: str) -> wire.Volume:
        """Put it back to what the snapshot has; what is on it now is lost. Refused while it is in use."""
        return self._line.send(calls.restore_volume(volume, snapshot=snapshot))

    def lock(self, volume: str) -> wire.Volume:
        return self._line.send(calls.lock_volume(volume))

    def unlock(self, volume: str) -> wire.Volume:
        return self._line.send(calls.unlock_volume(volume))

    def remove(self, volume: str) -> wire.Volume:
        """All that is on it is lost."""
        return self._line.send(calls.drop_volume(volume))
