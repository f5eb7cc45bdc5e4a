"""The work on a layer before it is kept as an image, and the look at every file of one that is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sandboxer.artifacts.images.published.listing import Comparison, Lists
from sandboxer.artifacts.images.published.manifest import Survey, check, survey
from sandboxer.artifacts.images.published.stripping import strip, strip_secrets
from sandboxer.artifacts.images.published.telling import Told
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.backends.contract import KeptLayers


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    base: str
    survey: Survey
    stripped: Told[str]


@dataclass(slots=True)
class Shaping:
    """What is done to the copy: credentials go, and with `clean` whatever else looks like a secret."""

    bounds: Bounds
    clean: bool = False
    stripped: Told[str] = field(default_factory=Told)

    def __call__(self, layer: int) -> None:
        strip(layer, self.bounds, self.stripped)
        if self.clean:
            strip_secrets(layer, self.bounds, self.stripped)


def survey_and_list(image_id: str, layers: KeptLayers, bounds: Bounds, lists: Lists) -> Survey:
    """Of one that is new. Blocks."""
    with _opened(layers) as layer, lists.writing(image_id) as writer:
        return survey(layer, base=layers.base, bounds=bounds, line=writer.put)


def verify(image_id: str, layers: KeptLayers, bounds: Bounds, lists: Lists, *, digest: str) -> None:
    """Every file read again. Blocks. Raises Conflict (altered) with what is different."""
    with _opened(layers) as layer, lists.reading(image_id) as listed:
        if listed is None:
            found = survey(layer, base=layers.base, bounds=bounds, scans=False)
            check(found, digest, id=image_id, altered=None)
            return
        comparison = Comparison(listed.lines())
        found = survey(layer, base=layers.base, bounds=bounds, scans=False, line=comparison.put)
        altered = comparison.finish()
        check(found, digest, id=image_id, altered=altered if listed.digest == digest else None)


@contextmanager
def _opened(layers: KeptLayers) -> Iterator[int]:
    fd = os.open(layers.layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)
