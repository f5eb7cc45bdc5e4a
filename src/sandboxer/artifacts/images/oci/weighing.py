"""What an archive will take when it is unpacked, found out by reading every layer to its end.

Its digests are checked, and what it will hold is counted, before anything is made of it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

from sandboxer.artifacts.images.oci.layers import WHITEOUT as MARK
from sandboxer.artifacts.images.oci.reading import Blob, layer_members, understand
from sandboxer.artifacts.images.oci.tar_reading import FILE
from sandboxer.artifacts.images.oci.work import Work
from sandboxer.artifacts.images.published.tree import Bounds
from sandboxer.kernel.errors import TooLarge

_BLOCK = 4096


@dataclass(slots=True, kw_only=True)
class Weight:
    layers: list[Blob] = field(default_factory=list)
    config: Mapping[str, Any] = field(default_factory=dict)
    bytes: int = 0
    entries: int = 0
    # Of each layer: whether it hides anything.
    marks: list[bool] = field(default_factory=list)


def weigh(file: IO[bytes], bounds: Bounds) -> Weight:
    """Blocks. Raises InvalidRequest for an archive that is not what it should be, TooLarge."""
    found = understand(file)
    weight, work = Weight(layers=list(found.layers), config=found.config), Work(bounds)
    ends = time.monotonic() + bounds.seconds
    for blob in found.layers:
        has_marks = False
        for member in layer_members(file, blob, most_bytes=bounds.bytes, ends=ends, work=work):
            weight.entries += 1
            has_marks = has_marks or MARK in member.path
            if member.kind == FILE:
                weight.bytes += -(-member.size // _BLOCK) * _BLOCK
            if weight.bytes > bounds.bytes:
                raise TooLarge(what="image", limit=f"{bounds.bytes >> 20} MB")
            if weight.entries > bounds.entries:
                raise TooLarge(what="image", limit=f"{bounds.entries} files and folders")
        weight.marks.append(has_marks)
    return weight
