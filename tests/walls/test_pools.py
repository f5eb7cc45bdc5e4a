"""Storage on hosts that have something else: their own btrfs, or none, and what they say of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from sandboxer.backends.contract import Wall
from sandboxer.backends.namespaces import NamespacesBackend, NamespacesSettings, open_backend
from sandboxer.backends.namespaces.pool import PoolKind, open_pool
from sandboxer.kernel.errors import Broken, NoCapacity, Unavailable
from tests.support.walls import Sandbox, order_for

ON_THE_LOOP = pytest.mark.asyncio(loop_scope="session")


@asynccontextmanager
async def opened(settings: NamespacesSettings, state: Path) -> AsyncIterator[NamespacesBackend]:
    async with open_backend(replace(settings, state_dir=state, pool_size_mb=256)) as backend:
        yield backend
        for sandbox_id in await backend.inventory():
            await backend.teardown(sandbox_id)
        pool = backend.dependencies.pool
    pool.unmount()


async def works(backend: NamespacesBackend) -> bool:
    order = order_for(disk_mb=32)
    box = Sandbox(backend, await backend.provision(order), order)
    # Deeper than a Python stack: removing must not mind.
    deep = "import os\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    ran = await box.sh(
        f'echo x > /root/f && chown 7:7 /root/f && cd /root && python3 -c "{deep}" && cat /root/f'
    )
    await backend.teardown(order.sandbox_id)
    return ran.stdout == "x\n" and not backend.dependencies.pool.has_disk(order.sandbox_id)


@ON_THE_LOOP
async def test_without_btrfs_disks_are_plain_folders_and_it_says_so(
    settings: NamespacesSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandboxer.backends.namespaces.pool.shutil.which", lambda _: None)
    state = Path(tempfile.mkdtemp(prefix="walls-plain-", dir="/var/tmp"))
    async with opened(settings, state) as backend:
        assert backend.dependencies.pool.kind is PoolKind.PLAIN
        assert await works(backend)
        monkeypatch.undo()
        seen = await backend.fingerprint()
        assert Wall.DISK not in seen.walls
        assert any("plain folders" in lack.why for lack in seen.lacks)
    shutil.rmtree(state)


@ON_THE_LOOP
async def test_without_loop_devices_disks_are_plain_folders_too(
    settings: NamespacesSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def no_device(file: Path, path: Path) -> None:
        raise Broken(why="losetup: cannot find an unused loop device")

    monkeypatch.setattr("sandboxer.backends.namespaces.pool._mount", no_device)
    pool = open_pool(replace(settings, state_dir=tmp_path, pool_size_mb=256))
    assert (pool.kind, pool.why_plain) == (PoolKind.PLAIN, "losetup: cannot find an unused loop device")
    assert os.listdir(tmp_path) == ["pool"]
    pool.close()


@ON_THE_LOOP
async def test_a_state_folder_on_btrfs_needs_no_loop_file(
    settings: NamespacesSettings, backend: NamespacesBackend
) -> None:
    state = backend.dependencies.pool.path / "native"
    async with opened(settings, state) as native:
        assert native.dependencies.pool.kind is PoolKind.NATIVE
        assert not native.dependencies.settings.pool_file.exists()
        assert Wall.DISK in (await native.fingerprint()).walls
        assert await works(native)
    shutil.rmtree(state)


@ON_THE_LOOP
async def test_the_loop_file_is_really_allocated(backend: NamespacesBackend) -> None:
    seen = os.stat(backend.dependencies.settings.pool_file)
    assert seen.st_blocks * 512 >= seen.st_size


def test_a_pool_that_does_not_fit_is_refused_and_leaves_no_file(settings: NamespacesSettings) -> None:
    state = Path(tempfile.mkdtemp(prefix="walls-small-", dir="/var/tmp"))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "none", state], check=True)
    try:
        with pytest.raises(NoCapacity, match="needs 384 MB, and 300 MB are free"):
            open_pool(replace(settings, state_dir=state, pool_size_mb=None))
        assert os.listdir(state) == ["pool"]
    finally:
        subprocess.run(["umount", state], check=True)
    state.rmdir()


@ON_THE_LOOP
async def test_the_fingerprint_names_what_this_host_lacks(backend: NamespacesBackend) -> None:
    seen = await backend.fingerprint()
    assert seen.healthy
    assert {Wall.FILES, Wall.SYSCALLS, Wall.UID_RANGE, Wall.MEMORY, Wall.PIDS, Wall.DISK} <= seen.walls
    assert all(lack.why and lack.remedy for lack in seen.lacks)
    assert Wall.IO not in seen.walls


def test_a_pool_that_was_cut_short_is_named_with_its_size_and_what_to_do(
    settings: NamespacesSettings, tmp_path: Path
) -> None:
    own = replace(settings, state_dir=tmp_path)
    subprocess.run(["truncate", "-s", "256M", own.pool_file], check=True)
    subprocess.run(["mkfs.btrfs", "-q", own.pool_file], check=True)
    for size, expected in ((128 << 20, f"{256 << 20} bytes"), (4096, "a btrfs file system")):
        os.truncate(own.pool_file, size)
        with pytest.raises(Unavailable) as refused:
            open_pool(own)
        assert f"{own.pool_file} is damaged: {expected} expected, {size} bytes found" in str(refused.value)
        assert f"mv {own.pool_file}" in str(refused.value.facts["hint"])
