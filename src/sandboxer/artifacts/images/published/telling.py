"""Reports that may be long: the first of it is kept and told, all of it is counted. A hostile tree may hold a
million things to tell of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")
SHOWN = 100


@dataclass(slots=True)
class Told(Generic[T]):
    most: int = SHOWN
    first: list[T] = field(default_factory=list)
    count: int = 0

    def add(self, one: T) -> None:
        self.count += 1
        if len(self.first) < self.most:
            self.first.append(one)
