"""Copies made ahead of a batch are taken by its sandboxes, and whatever nobody took is gone afterwards.

How many commits they share is for the bench: on a busy machine they may not meet.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.contract import Handle, Resources
from sandboxer.backends.guest import Command, Exit
from sandboxer.backends.namespaces import NamespacesBackend, open_backend
from sandboxer.backends.namespaces.kept.copies import Spares
from sandboxer.backends.namespaces.pool import SPARE, PoolKind
from sandboxer.kernel.errors import NotFound
from sandboxer.kernel.values import new_id
from tests.support.real_backend import (
    clear,
    make_order,
    remove_leftovers,
    require_walls,
    settings_for,
    state_folder,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
SMALL = Resources(vcpus=0.1, memory_mb=32, disk_mb=16, pids=16)
COUNT = 24


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend() -> AsyncIterator[NamespacesBackend]:
    require_walls()
    with state_folder() as state:
        async with open_backend(settings_for(state, pool_size_mb=1024)) as opened:
            yield opened
            await clear(opened)
        remove_leftovers(opened)


@pytest_asyncio.fixture(loop_scope="module")
async def disk_id(backend: NamespacesBackend) -> AsyncIterator[str]:
    order = replace(make_order(), resources=SMALL)
    kept = new_id("snp")
    await backend.take(await backend.provision(order), kept)
    yield kept
    await clear(backend)
    await backend.drop(kept)


def spares(backend: NamespacesBackend) -> list[str]:
    return [name for name in os.listdir(backend.dependencies.pool.path) if name.startswith(SPARE)]


async def copies(backend: NamespacesBackend, disk_id: str, count: int) -> list[Handle]:
    orders = [replace(make_order(), resources=SMALL, origin=disk_id) for _ in range(count)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(backend.provision(order)) for order in orders]
    return [task.result() for task in tasks]


async def said(backend: NamespacesBackend, handle: Handle, *argv: str) -> bytes:
    async with await (await backend.guest(handle)).run(Command(argv=argv, keep=False)) as process:
        return b"".join([item.data async for item in process.output() if not isinstance(item, Exit)])


async def test_a_batch_takes_the_copies_made_ahead_and_all_are_their_own(
    backend: NamespacesBackend, disk_id: str
) -> None:
    if backend.dependencies.pool.kind is PoolKind.PLAIN:
        pytest.skip("this host has no btrfs, so nothing is copied ahead")
    async with backend.copies_ahead(disk_id, COUNT):
        assert len(spares(backend)) == COUNT
        handles = await copies(backend, disk_id, COUNT)
        assert spares(backend) == []
    machine_ids = {await said(backend, handle, "/bin/cat", "/etc/machine-id") for handle in handles}
    assert len(machine_ids) == COUNT
    limits = {backend.dependencies.pool.usage(handle.sandbox_id).limit_bytes for handle in handles}
    assert limits == {SMALL.disk_mb << 20}


async def test_what_nobody_took_is_gone_also_when_the_batch_fails(
    backend: NamespacesBackend, disk_id: str
) -> None:
    async def fail_half_way() -> None:
        async with backend.copies_ahead(disk_id, 4):
            await copies(backend, disk_id, 1)
            raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        await fail_half_way()
    assert spares(backend) == []


async def test_two_batches_of_one_disk_leave_each_other_theirs(
    backend: NamespacesBackend, disk_id: str
) -> None:
    async with backend.copies_ahead(disk_id, 2):
        async with backend.copies_ahead(disk_id, 3):
            assert len(spares(backend)) == 5
        assert len(spares(backend)) == 2
        await copies(backend, disk_id, 3)
    assert spares(backend) == []


async def test_who_leaves_while_copies_are_made_leaves_none(backend: NamespacesBackend, disk_id: str) -> None:
    async def ahead() -> None:
        async with backend.copies_ahead(disk_id, COUNT):
            raise AssertionError("it was to be cancelled before")

    leaving = asyncio.create_task(ahead())
    while not spares(backend):
        assert not leaving.done()
        await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.wait((leaving,))
    assert leaving.cancelled()
    assert spares(backend) == []


async def test_a_killed_servers_spares_are_swept_at_the_next_start(
    backend: NamespacesBackend, disk_id: str
) -> None:
    await backend.copies_ahead(disk_id, 2).__aenter__()
    assert len(spares(backend)) == 2
    backend.dependencies.pool.sweep()
    assert spares(backend) == []


async def test_a_spare_that_cannot_be_moved_is_not_left_behind(
    backend: NamespacesBackend, disk_id: str, tmp_path: Path
) -> None:
    if backend.dependencies.pool.kind is PoolKind.PLAIN:
        pytest.skip("this host has no btrfs, so nothing is copied ahead")
    spare = Spares(backend.dependencies.pool, backend.dependencies.copies)
    spare.make(disk_id, spare.names(disk_id, 1))
    (tmp_path / "in the way").touch()
    with pytest.raises(OSError, match="in the way"):
        spare.take(disk_id, tmp_path / "in the way")
    assert spares(backend) == []


async def test_a_disk_that_is_not_kept_is_refused(backend: NamespacesBackend) -> None:
    with pytest.raises(NotFound):
        async with backend.copies_ahead(new_id("snp"), 2):
            raise AssertionError("entered")
    assert spares(backend) == []
