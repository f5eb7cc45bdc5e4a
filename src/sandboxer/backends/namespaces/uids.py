"""Uid ranges: 65,536 host ids for each running sandbox, so that no two of them share one."""

from __future__ import annotations

import heapq

from sandboxer.kernel.errors import NoCapacity

WIDTH = 65536


class UidRanges:
    """Numbered ranges from `base` upwards, lowest free first. On disk every file carries plain ids, so a
    range can be given to anyone as soon as its last process is gone."""

    def __init__(self, base: int, count: int) -> None:
        self._base = base
        self._count = count
        self._next = 0
        self._free: list[int] = []
        self._taken: set[int] = set()

    def take(self) -> int:
        """A free range's number."""
        while self._free:
            slot = heapq.heappop(self._free)
            if slot not in self._taken:
                self._taken.add(slot)
                return slot
        while self._next in self._taken:
            self._next += 1
        if self._next >= self._count:
            raise NoCapacity(resource="uid ranges", why=f"all {self._count} are in use")
        slot = self._next
        self._next += 1
        self._taken.add(slot)
        return slot

    def claim(self, slot: int) -> None:
        """One that a sandbox found alive already has."""
        self._taken.add(slot)

    def give_back(self, slot: int) -> None:
        if slot in self._taken:
            self._taken.discard(slot)
            heapq.heappush(self._free, slot)

    def first_uid(self, slot: int) -> int:
        return self._base + slot * WIDTH

    @property
    def taken(self) -> frozenset[int]:
        return frozenset(self._taken)
