"""The image repository is the only writer of records of published images. Their lifecycle is that of any kept
disk (`snapshots/lifecycle`).
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection

from sandboxer.artifacts.charges import Charged, KeepCharges
from sandboxer.artifacts.images.published import records
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.repository import KeptRepository
from sandboxer.artifacts.snapshots.lifecycle import OVER, Signal, State
from sandboxer.artifacts.snapshots.repository import LIFECYCLE
from sandboxer.kernel.clock import Clock
from sandboxer.store import steps
from sandboxer.store.engine import Store

Step = steps.Step[PublishedImage, Signal]


class ImageRepository(KeptRepository[PublishedImage, Step]):
    noun = "image"

    def __init__(self, store: Store, clock: Clock, charges: KeepCharges | None) -> None:
        super().__init__(store, clock, records.rows, LIFECYCLE, charges)

    def rate(self, account: str, profile: str, size_bytes: int) -> int:
        return 0 if self._charges is None else self._charges.rate(account, profile, size_bytes)

    async def demand_funds(self, account: str, profile: str) -> None:
        """Raises InsufficientCredit for an account that may keep nothing, before an archive is received and
        not after.
        """
        charges, now = self._charges, self.clock.now()
        if charges is not None and not charges.is_free(account, profile):
            await self.store.write(
                lambda conn: charges.demand_funds(conn, account, more=0, size_mb=0, now=now)
            )

    def _charged(self, record: PublishedImage) -> Charged:
        return record

    def _charge(
        self, conn: Connection, charges: KeepCharges, change: steps.Change[PublishedImage, Step]
    ) -> None:
        before, after, now = change.before, change.after, change.now
        assert before is not None
        if before.state is State.TAKING and after.state is State.KEPT:
            # Its size is known only now.
            charges.admit(conn, after, now=now)
        if before.hands != after.hands:
            charges.admit(conn, after, now=now)
            charges.end(conn, meter_of(before), now=now)
        charges.apply(conn, after, now=now, at=change.entries[-1].step.at, meter=meter_of(after))

    def _record(self, conn: Connection, change: steps.Change[PublishedImage, Step]) -> None:
        if change.after.state in OVER:
            records.drop_grants(conn, change.after.id)
        super()._record(conn, change)

    def _facts(self, change: steps.Change[PublishedImage, Step]) -> Mapping[str, object]:
        return {"source": change.after.source} if change.before is None else {}


def meter_of(image: PublishedImage) -> str:
    return f"meter:{image.id}" if not image.hands else f"meter:{image.id}:{image.hands}"
