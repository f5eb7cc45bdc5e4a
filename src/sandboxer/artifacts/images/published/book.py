"""The book of published images: the only writer of their records.

Each step is one short transaction that changes the record, lets the charge follow, and tells of it; the
lifecycle is that of any kept disk (`snapshots/lifecycle`), `version` fences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from sqlalchemy import Connection

from sandboxer.artifacts import stepping
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.snapshots.charging import KeepCharges
from sandboxer.artifacts.snapshots.lifecycle import OVER, Signal, State, next_state
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.observe import events
from sandboxer.store.engine import Store

_TRIES = 8
Also = Callable[[Connection, str], None]


Step = stepping.Step[PublishedImage, Signal]
_LIFECYCLE = stepping.Lifecycle[Signal](next_state=next_state, ended=OVER | {State.LOST})


class ImageBook:
    def __init__(self, store: Store, clock: Clock, charges: KeepCharges | None) -> None:
        self.store = store
        self._clock = clock
        self._charges = charges
        self._watchers: list[Callable[[], None]] = []

    def on_change(self, watcher: Callable[[], None]) -> None:
        """Called after every commit. Must be quick and not raise."""
        self._watchers.append(watcher)

    async def find(self, image_id: str) -> PublishedImage | None:
        return await self.store.read(lambda conn: records.load(conn, image_id))

    async def living(self) -> Sequence[PublishedImage]:
        return await self.store.read(records.load_living)

    def rate(self, account: str, profile: str, size_bytes: int) -> int:
        return 0 if self._charges is None else self._charges.rate(account, profile, size_bytes)

    async def demand_funds(self, account: str, profile: str) -> None:
        """Raises InsufficientCredit for who may keep nothing: before an archive is taken in, not after."""
        charges, now = self._charges, self._clock.now()
        if charges is not None and not charges.is_free(account, profile):
            await self.store.write(
                lambda conn: charges.demand_funds(conn, account, more=0, size_mb=0, now=now)
            )

    async def open(
        self, wanted: PublishedImage, *, check: Callable[[Connection], None], also: Also | None
    ) -> PublishedImage:
        now = self._clock.now()

        def write(conn: Connection) -> PublishedImage:
            check(conn)
            if self._charges is not None:
                self._charges.admit(conn, wanted, now=now)
            records.insert_record(conn, wanted)
            if also is not None:
                also(conn, wanted.id)
            _tell(
                conn, wanted, "image.taking", wanted.created_by, "requested", now, {"source": wanted.source}
            )
            return wanted

        opened = await self.store.write(write)
        self._told()
        return opened

    async def move(self, image_id: str, step: Step) -> PublishedImage:
        """Raises IllegalTransition, NotFound, and what `step.check` raises."""
        for _ in range(_TRIES):
            before = await self.find(image_id)
            if before is None:
                raise NotFound(what="image", id=image_id)
            now = self._clock.now()
            after = stepping.stepped(before, step, _LIFECYCLE, now)

            def write(
                conn: Connection,
                b: PublishedImage = before,
                a: PublishedImage = after,
                at: datetime = now,
            ) -> bool:
                if not records.replace_record(conn, b, a):
                    return False
                if step.check_stored is not None:
                    step.check_stored(conn, a)
                self._charge(conn, b, a, at, step.at)
                if a.state in OVER:
                    records.drop_grants(conn, a.id)
                if step.also is not None:
                    step.also(conn)
                data = {"from": b.state.value, "to": a.state.value, **step.data}
                kind = step.kind or f"image.{a.state.value}"
                _tell(conn, a, kind, step.actor, step.reason, at, data)
                return True

            if await self.store.write(write):
                self._told()
                return after
        raise Conflict(why=f"image {image_id} is changing too fast")

    def _charge(
        self,
        conn: Connection,
        before: PublishedImage,
        after: PublishedImage,
        now: datetime,
        at: datetime | None,
    ) -> None:
        if self._charges is None:
            return
        if before.state is State.TAKING and after.state is State.KEPT:
            # Only now is it known how large it is.
            self._charges.admit(conn, after, now=now)
        if before.hands != after.hands:
            self._charges.admit(conn, after, now=now)
            self._charges.end(conn, meter_of(before), now=now)
        self._charges.apply(conn, after, now=now, at=at, meter=meter_of(after))

    def _told(self) -> None:
        for watcher in self._watchers:
            watcher()


def meter_of(image: PublishedImage) -> str:
    return f"meter:{image.id}" if not image.hands else f"meter:{image.id}:{image.hands}"


def _tell(
    conn: Connection,
    image: PublishedImage,
    kind: str,
    actor: str,
    reason: str,
    at: datetime,
    data: Mapping[str, object],
) -> None:
    events.record(conn, subject=image.id, kind=kind, actor=actor, reason=reason, at=at, data=data)
