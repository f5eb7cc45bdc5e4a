"""An archive that was packed as a whole (`docker save … | gzip`), unpacked into a second file of ours.

Its parts are looked for by their places, which nothing packed has. It may become no larger than one that came
plain, and what it needs of memory and time is bounded as for a layer.
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import IO

from sandboxer.artifacts.images.oci.unpacking import FEED, Plain, packing_of
from sandboxer.kernel.errors import NoCapacity, TooLarge

# Left to the host whatever is sent.
FREE_BYTES = 1 << 30
_START = 8


def is_packed(file: IO[bytes]) -> bool:
    file.seek(0)
    return not isinstance(packing_of(file.read(_START)), Plain)


def unpack_whole(packed: IO[bytes], plain: IO[bytes], *, room: Path, most_bytes: int, ends: float) -> None:
    """Blocks. Raises InvalidRequest for what is damaged, TooLarge, NoCapacity if there is none in `room`.

    `ends`: when, by the monotonic clock, nobody reads on.
    """
    packed.seek(0)
    packing, fed, size = packing_of(packed.read(_START)), b"", 0
    packed.seek(0)
    while True:
        if packing.is_hungry:
            fed = packed.read(FEED)
            if not fed:
                break
        # Empty pieces take as long as full ones, and it may hold nothing else.
        if time.monotonic() > ends:
            raise TooLarge(what="archive", limit="the time there is to read it")
        content, fed = packing.unpack(fed), b""
        size += len(content)
        if size > most_bytes:
            raise TooLarge(what="archive", limit=f"{most_bytes >> 20} MB unpacked")
        if content:
            refuse_full(room, len(content))
            plain.write(content)
    packing.finish()
    plain.flush()


def refuse_full(room: Path, count: int) -> None:
    """Raises NoCapacity if `count` more bytes in `room` would leave the host too little."""
    if shutil.disk_usage(room).free < FREE_BYTES + count:
        raise NoCapacity(resource="disk", why="the host has no room to receive it")
