"""How much of the pool is held by nobody's limit: written by sandboxes that are gone, kept by others. Blocks.

The kernel counts what is written for the disk that wrote it, and goes on counting it there as long as anyone
holds it. While that sandbox lives, its own limit covers it; afterwards it must be promised here.
"""

from __future__ import annotations

from sandboxer.backends.namespaces.kept.copies import Copies
from sandboxer.backends.namespaces.kept.records import Heritage, HeritageFolder, Owner
from sandboxer.backends.namespaces.pool import MB, Pool


class Counting:
    def __init__(self, pool: Pool, copies: Copies, heritages: HeritageFolder) -> None:
        self._pool = pool
        self._copies = copies
        self._heritages = heritages

    def kept_mb(self) -> int:
        """Of everybody who is gone."""
        return -(-sum(self._pool.charged(owner.number) for owner in self._ownerless()) // MB)

    def left_behind_mb(self, sandbox_id: str) -> int:
        """At most what others would go on holding of this disk if it went."""
        return -(-self._pool.usage(sandbox_id).used_bytes // MB)

    def inherited(self, sandbox_id: str) -> tuple[Owner, ...]:
        """Whose the content of a disk is now: its own, and of those it descends from."""
        if not self._copies.are_instant:
            return ()
        older = self._heritages.known.get(sandbox_id)
        still = () if older is None else (o for o in older.owners if self._pool.charged(o.number))
        return (*still, Owner(self._pool.number(sandbox_id), sandbox_id))

    def at_most(self, owners: tuple[Owner, ...]) -> int:
        return sum(self._pool.charged(owner.number) for owner in owners)

    def alone(self, heritage: Heritage) -> int:
        """Freed if this one were dropped: its own, and what of the gone nobody else may hold."""
        if not self._copies.are_instant:
            return heritage.bytes or 0
        alone = (o for o in heritage.owners if not self._heritages.is_held_by_others(o, heritage))
        mine = {owner.number for owner in alone if not self._lives(owner)}
        numbers = {self._copies.number(heritage.id), *mine}
        return sum(self._pool.charged(number) for number in numbers)

    def _ownerless(self) -> set[Owner]:
        return {owner for owner in self._heritages.owners() if not self._lives(owner)}

    def _lives(self, owner: Owner) -> bool:
        try:
            return self._pool.number(owner.sandbox_id) == owner.number
        except OSError:
            return False
