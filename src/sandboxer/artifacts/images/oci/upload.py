"""Receives an archive: it is held in a file until it is complete, examined, and only then unpacked.

Every layer is read to its end before anything is made: its digests are checked, and its content is counted
against the account's quota and reserved in the pool.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, nullcontext
from dataclasses import field, replace
from pathlib import Path
from typing import IO, Any

from sandboxer.accounts.authority import AuthorityRepository
from sandboxer.artifacts.images.oci.applying import is_packed, refuse_full
from sandboxer.artifacts.images.oci.unpacker import Unpacker, Weight
from sandboxer.artifacts.images.published.records import PublishedImage
from sandboxer.artifacts.images.published.use_cases import ImageUseCases, Wanted
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.errors import TooLarge, Unavailable
from sandboxer.kernel.values import brief_value_class
from sandboxer.store.repository import Also

# How many archives are unpacked at once, received at once, and received for one account; how long a complete
# archive waits for its turn.
AT_ONCE = 2
RECEIVED_AT_ONCE = 16
PER_ACCOUNT = 1
WAIT_S = 600.0
_MB = 1 << 20
# The pool's own overhead for each file and folder.
_PER_ENTRY = 1024
_HEADROOM_MB = 32

# Cancels its body when whoever waits for it has left.
Attended = Callable[[], AbstractAsyncContextManager[None]]


@brief_value_class
class Importing:
    use_cases: ImageUseCases
    spool_dir: Path
    default_profile: str
    authorities: AuthorityRepository
    budget: Budget
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(AT_ONCE))

    async def receive(
        self,
        archive: AsyncIterator[bytes],
        wanted: Wanted,
        caller: Caller,
        *,
        profile: str | None = None,
        also: Also | None = None,
        attended: Attended = nullcontext,
    ) -> PublishedImage:
        """Imports an archive. Raises InvalidRequest for an archive that is not what it should be, TooLarge,
        NoCapacity.

        `attended` is entered once the archive has arrived; it cancels its body when nobody waits any more.
        """
        root = (await self.authorities.of(caller)).root
        await self.use_cases.repository.demand_funds(caller.account, profile or self.default_profile)
        with self.budget.slot("imports", root, per_account=PER_ACCOUNT, in_all=RECEIVED_AT_ONCE):
            return await self._receive(archive, wanted, caller, profile, also, attended)

    async def _receive(
        self,
        archive: AsyncIterator[bytes],
        wanted: Wanted,
        caller: Caller,
        profile: str | None,
        also: Also | None,
        attended: Attended,
    ) -> PublishedImage:
        # A worker is reserved only after the archive has arrived, so that a slow sender blocks nobody.
        async with self._spooled(archive) as file, attended(), self._place():
            with tempfile.TemporaryFile(dir=self.spool_dir) as plain:
                unpacker = Unpacker(file, self.use_cases.policy.bounds)
                try:
                    if is_packed(file):
                        most = self.use_cases.policy.upload_bytes
                        await asyncio.to_thread(unpacker.unpack, plain, self.spool_dir, most)
                    weight = await asyncio.to_thread(unpacker.weigh)
                    publishing = self._publish(unpacker, weight, wanted, caller, profile=profile, also=also)
                    return await _ending_with_us(publishing, unpacker)
                finally:
                    unpacker.kill()

    async def _publish(
        self,
        unpacker: Unpacker,
        weight: Weight,
        wanted: Wanted,
        caller: Caller,
        *,
        profile: str | None,
        also: Also | None,
    ) -> PublishedImage:
        # A layer that hides what another brought needs space for both, but only temporarily.
        limit_mb = (weight.bytes + weight.entries * _PER_ENTRY) // _MB + _HEADROOM_MB
        return await self.use_cases.receive(
            replace(wanted, config=weight.config),
            caller,
            lambda root: unpacker.apply(root, weight.layers, weight.marks),
            profile=profile or self.default_profile,
            limit_mb=limit_mb,
            size_bytes=weight.bytes,
            also=also,
        )

    @asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(WAIT_S):
                await self.slots.acquire()
        except TimeoutError:
            raise Unavailable(why=f"{AT_ONCE} imports are under way", hint="Try again in a while.") from None
        try:
            yield
        finally:
            self.slots.release()

    @asynccontextmanager
    async def _spooled(self, archive: AsyncIterator[bytes]) -> AsyncIterator[IO[bytes]]:
        with await self.spool(archive) as file:
            yield file

    async def spool(self, archive: AsyncIterator[bytes]) -> IO[bytes]:
        """Returns a file without a name, so that nothing is left of it, whatever happens."""
        self.spool_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        most, size = self.use_cases.policy.upload_bytes, 0
        with ExitStack() as undo:
            file = undo.enter_context(tempfile.TemporaryFile(dir=self.spool_dir))
            async for chunk in archive:
                size += len(chunk)
                if size > most:
                    raise TooLarge(what="archive", limit=f"{most >> 20} MB")
                refuse_full(self.spool_dir, len(chunk))
                await asyncio.to_thread(file.write, chunk)
            file.flush()
            undo.pop_all()
        return file


async def _ending_with_us(
    publishing: Coroutine[Any, Any, PublishedImage], unpacker: Unpacker
) -> PublishedImage:
    """Ends the process on leaving, before a half-made disk that it fills is removed."""
    work = asyncio.ensure_future(publishing)
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        unpacker.kill()
        await asyncio.wait({work})
        raise
