"""What is kept of a stopped sandbox's memory costs what as much disk costs, however small its own disk is."""

from __future__ import annotations

import pytest

from sandboxer.backends.contract import Handle, KeptDisk
from sandboxer.backends.scripted import Scripted
from sandboxer.sandboxes.charging import rate_now
from sandboxer.sandboxes.requests import CreateRequest, WantedResources
from sandboxer.sandboxes.use_cases import creation, pause
from tests.support.charging import fund
from tests.support.routes import FIRST, Open
from tests.support.sandboxes import ALICE

KEPT_MB = 4096


class Keeping(Scripted):
    """Keeps what runs, as it says."""

    async def take_with_memory(self, handle: Handle, disk_id: str) -> KeptDisk:
        return await self.take(handle, disk_id)

    async def suspend(self, handle: Handle) -> int:
        await self.stop(handle)
        return KEPT_MB * 2**20


@pytest.mark.parametrize(("disk_mb", "of_disk"), [(16, 1), (1024, 5)])
async def test_memory_is_priced_as_disk_by_what_is_kept(open_with: Open, disk_mb: int, of_disk: int) -> None:
    pricing = {"rates": {"stored_disk_gb_msats": 5}}
    async with open_with(Keeping(name=FIRST), charging=True, pricing=pricing) as platform:
        await fund(platform, 100_000, id="first")
        small = CreateRequest(resources=WantedResources(disk_mb=disk_mb))
        made = await creation.create(platform.sandboxes, small, ALICE)
        stopped = await pause.stop(platform.sandboxes, made.id, ALICE, memory=True)
        assert (stopped.terms.memory_mb, rate_now(stopped)) == (KEPT_MB, of_disk + 20)

        # Nothing of its memory is kept any more: it pays for its disk alone.
        ended = await pause.stop(platform.sandboxes, made.id, ALICE)
        assert (ended.terms.memory_mb, rate_now(ended)) == (0, of_disk)
        resumed = await pause.resume(platform.sandboxes, made.id, ALICE)
        assert rate_now(resumed) == made.terms.card.running
