"""A budget of work for one archive: what it makes us do is counted, since time tells nothing on a busy host.

Every step that an archive can ask for costs, whether it brings anything or not: an entry, a name, a piece of
something packed that holds nothing, a name looked at while a folder is cleared.
"""

from __future__ import annotations

from dataclasses import dataclass

from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.kernel.errors import TooLarge

# Names of entries are remembered while a layer is applied.
MAX_NAMES_BYTES = 256 << 20
# Steps for each entry that an image may have; an ordinary one takes two or three.
_STEPS_EACH = 8


@dataclass(slots=True)
class Work:
    bounds: Bounds
    steps: int = 0
    names: int = 0

    def step(self, count: int = 1) -> None:
        """Raises TooLarge when the archive asks for more than any honest one would."""
        self.steps += count
        if self.steps > self.bounds.entries * _STEPS_EACH:
            raise TooLarge(what="image", limit=f"{self.bounds.entries * _STEPS_EACH} steps to unpack it")

    def name(self, path: bytes) -> None:
        self.names += len(path)
        if self.names > MAX_NAMES_BYTES:
            raise TooLarge(what="image", limit=f"{MAX_NAMES_BYTES >> 20} MB of names")
