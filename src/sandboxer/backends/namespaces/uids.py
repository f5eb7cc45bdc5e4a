"""Uid ranges: 65,536 host ids for each running sandbox, so that no two of them share one."""

from __future__ import annotations

import heapq
import logging

from sandboxer.backends.namespaces.uid_claims import UidClaims
from sandboxer.kernel.errors import NoCapacity

log = logging.getLogger(__name__)
WIDTH = 65536
# Ranges that are claimed on the host at once: a claim looks at every process.
BLOCK = 64


class UidRanges:
    """Numbered ranges from `base` upwards, lowest free first. On disk every file carries plain ids, so a
    range can be given to anyone as soon as its last process is gone.

    `claims` None: nobody else is on this host. Otherwise only ranges of blocks that are claimed are taken.
    """

    def __init__(self, base: int, count: int, claims: UidClaims | None = None) -> None:
        self._base = base
        self._count = count
        self._claims = claims
        self._free: list[int] = []
        self._taken: set[int] = set()
        # Ranges in which a process of nobody's was seen at the start: not given away by this server.
        self._avoided: set[int] = set()
        self._blocks: set[int] = set()

    def take(self) -> int:
        """A free range's number."""
        while True:
            while self._free:
                slot = heapq.heappop(self._free)
                if slot not in self._taken and slot not in self._avoided:
                    self._taken.add(slot)
                    return slot
            self._open_block()

    def claim(self, slot: int) -> None:
        """One that a sandbox found alive already has."""
        self._taken.add(slot)
        block = slot // BLOCK
        if block in self._blocks:
            return
        if self._claims is None or self._claims.claim_own(*self._uids(block)):
            self._use(block)
        else:
            log.warning("uids %d… of a living sandbox are another platform's too", self.first_uid(slot))

    def avoid(self, uid: int) -> None:
        """A process has this host id: its range is not to be given away, whosever it is."""
        slot = (uid - self._base) // WIDTH
        if 0 <= slot < self._count:
            self._avoided.add(slot)

    def give_back(self, slot: int) -> None:
        if slot in self._taken:
            self._taken.discard(slot)
            if slot // BLOCK in self._blocks:
                heapq.heappush(self._free, slot)

    def first_uid(self, slot: int) -> int:
        return self._base + slot * WIDTH

    def owns(self, uid: int) -> bool:
        """Whether this host id is in a block that is ours alone."""
        return (uid - self._base) // (WIDTH * BLOCK) in self._blocks

    @property
    def taken(self) -> frozenset[int]:
        return frozenset(self._taken)

    def _open_block(self) -> None:
        """Claim the lowest block that nobody has. Raises NoCapacity."""
        others = 0
        for block in range(-(-self._count // BLOCK)):
            if block in self._blocks:
                continue
            if self._claims is None or self._claims.claim(*self._uids(block)):
                self._use(block)
                return
            others += 1
        why = f"all {self._count} are in use"
        if others:
            why += f", {others * BLOCK} of them by others on this host"
        raise NoCapacity(resource="uid ranges", why=why)

    def _use(self, block: int) -> None:
        self._blocks.add(block)
        for slot in range(block * BLOCK, min((block + 1) * BLOCK, self._count)):
            if slot not in self._taken:
                heapq.heappush(self._free, slot)

    def _uids(self, block: int) -> tuple[int, int]:
        first = block * BLOCK
        return self.first_uid(first), (min(first + BLOCK, self._count) - first) * WIDTH
