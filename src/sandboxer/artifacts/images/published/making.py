"""The work on a layer before it is kept as an image, and the look at every file of one that is."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field

from sandboxer.artifacts.images.published.manifest import Survey, survey
from sandboxer.artifacts.images.published.stripping import remove, strip
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.backends.contract import KeptLayers


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    base: str
    survey: Survey
    stripped: tuple[str, ...]


@dataclass(slots=True)
class Shaping:
    """What is done to the copy: credentials go, and with `clean` whatever else looks like a secret."""

    bounds: Bounds
    clean: bool = False
    stripped: list[str] = field(default_factory=list)

    def __call__(self, layer: int) -> None:
        self.stripped += strip(layer, self.bounds)
        if self.clean:
            found = survey(layer, base="", bounds=self.bounds).findings
            self.stripped += remove(layer, {one.path for one in found}, self.bounds)


async def surveyed(layers: KeptLayers, bounds: Bounds) -> Survey:
    return await asyncio.to_thread(_survey, layers, bounds)


def _survey(layers: KeptLayers, bounds: Bounds) -> Survey:
    fd = os.open(layers.layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return survey(fd, base=layers.base, bounds=bounds)
    finally:
        os.close(fd)
