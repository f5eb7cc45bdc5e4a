"""An archive on its way in: held in a file until it is whole, looked through, and only then unpacked.

Every layer is read to its end before anything is made: its digests are checked, and what it will hold is
counted against the account's quota and promised by the pool.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import IO

from sandboxer.artifacts.images.oci.applying import Applying
from sandboxer.artifacts.images.oci.layers import WHITEOUT as MARK
from sandboxer.artifacts.images.oci.reading import Found, layer_members, understand
from sandboxer.artifacts.images.oci.tar_reading import FILE
from sandboxer.artifacts.images.oci.whole import is_packed, refuse_full, unpack_whole
from sandboxer.artifacts.images.published.book import Also
from sandboxer.artifacts.images.published.desk import ImageDesk, Wanted
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import TooLarge, Unavailable

AT_ONCE = 2
_MB = 1 << 20
_BLOCK = 4096
# Of the pool's own, for each file and folder.
_PER_ENTRY = 1024
_HEADROOM_MB = 32


@dataclass(slots=True, kw_only=True)
class Weight:
    bytes: int = 0
    entries: int = 0
    # Of each layer: whether it hides anything.
    marks: list[bool] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Importing:
    desk: ImageDesk
    spool_dir: Path
    default_profile: str
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def receive(
        self,
        archive: AsyncIterator[bytes],
        wanted: Wanted,
        caller: Caller,
        *,
        profile: str | None = None,
        also: Also | None = None,
    ) -> PublishedImage:
        """Raises InvalidRequest for an archive that is not what it should be, TooLarge, NoCapacity."""
        if self.slots.locked():
            raise Unavailable(why=f"{AT_ONCE} imports are under way", hint="Try again in a while.")
        async with self.slots, self._spooled(archive) as file:
            found, weight = await asyncio.to_thread(self._weigh, file)
            # A layer that hides what another brought takes room for both meanwhile, not for good.
            limit_mb = (weight.bytes + weight.entries * _PER_ENTRY) // _MB + _HEADROOM_MB

            def fill(root: int) -> None:
                bounds = self.desk.policy.bounds
                applying = Applying(root, bounds)
                for blob, has_marks in zip(found.layers, weight.marks, strict=True):
                    inside = layer_members(file, blob, most_bytes=bounds.bytes, ends=applying.ends)
                    applying.apply(inside, has_marks=has_marks)
                applying.furnish()

            return await self.desk.receive(
                replace(wanted, config=found.config),
                caller,
                fill,
                profile=profile or self.default_profile,
                limit_mb=limit_mb,
                size_bytes=weight.bytes,
                also=also,
            )

    @asynccontextmanager
    async def _spooled(self, archive: AsyncIterator[bytes]) -> AsyncIterator[IO[bytes]]:
        """Without a name: nothing is left of it, whatever happens."""
        self.spool_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        most = self.desk.policy.upload_bytes
        with tempfile.TemporaryFile(dir=self.spool_dir) as file:
            size = 0
            async for chunk in archive:
                size += len(chunk)
                if size > most:
                    raise TooLarge(what="archive", limit=f"{most >> 20} MB")
                refuse_full(self.spool_dir, len(chunk))
                await asyncio.to_thread(file.write, chunk)
            file.flush()
            if not is_packed(file):
                yield file
                return
            with tempfile.TemporaryFile(dir=self.spool_dir) as plain:
                ends = time.monotonic() + self.desk.policy.bounds.seconds
                unpack = partial(unpack_whole, room=self.spool_dir, most_bytes=most, ends=ends)
                await asyncio.to_thread(unpack, file, plain)
                # The first is not read any more.
                file.close()
                yield plain

    def _weigh(self, file: IO[bytes]) -> tuple[Found, Weight]:
        found, bounds = understand(file), self.desk.policy.bounds
        weight, ends = Weight(), time.monotonic() + bounds.seconds
        for blob in found.layers:
            has_marks = False
            for member in layer_members(file, blob, most_bytes=bounds.bytes, ends=ends):
                weight.entries += 1
                has_marks = has_marks or MARK in member.path
                if member.kind == FILE:
                    weight.bytes += -(-member.size // _BLOCK) * _BLOCK
                if weight.bytes > bounds.bytes:
                    raise TooLarge(what="image", limit=f"{bounds.bytes >> 20} MB")
                if weight.entries > bounds.entries:
                    raise TooLarge(what="image", limit=f"{bounds.entries} files and folders")
            weight.marks.append(has_marks)
        return found, weight
