"""Opens a real backend for tests, which are skipped with the reason where this host cannot build walls."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandboxer.backends.contract import Order, Resources, Trust
from sandboxer.backends.namespaces import NamespacesBackend, NamespacesSettings
from sandboxer.kernel.values import new_id
from sandboxer.settings import Settings
from tests.support.leftovers import own

IMAGES_DIR = Settings().images_dir
GUEST_DIR = Settings().guest_dir


def why_no_walls() -> str | None:
    if os.geteuid() != 0:
        return "walls need root on the host"
    for program in ("launcher", "supervisor"):
        if not (GUEST_DIR / program).is_file():
            return f"{GUEST_DIR / program} is not built: run `make -C guest`"
    if not (IMAGES_DIR / "base" / "image.json").is_file():
        return f"no base image in {IMAGES_DIR}: run `sandboxer image build base`"
    return None


def require_walls() -> None:
    if why := why_no_walls():
        pytest.skip(why)


@contextmanager
def state_folder() -> Iterator[Path]:
    """Not below /tmp, which may be memory: a storage pool will lie in it."""
    folder = own(Path(tempfile.mkdtemp(prefix="sandboxer-test-", dir="/var/tmp")))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def settings_for(state: Path, *, pool_size_mb: int = 2048) -> NamespacesSettings:
    return NamespacesSettings(
        state_dir=state,
        images_dir=IMAGES_DIR,
        guest_dir=GUEST_DIR,
        pool_size_mb=pool_size_mb,
        uid_base=1_500_000_000 + (os.getpid() % 500) * 65536 * 16,
    )


async def clear(backend: NamespacesBackend) -> None:
    for sandbox_id in await backend.inventory():
        await backend.teardown(sandbox_id)


def remove_leftovers(backend: NamespacesBackend) -> None:
    """Removes what outlives the backend by design: cgroup parents and the mounted pool with its loop."""
    backend.dependencies.cgroups.remove_parents()
    backend.dependencies.pool.unmount()


def make_order() -> Order:
    return Order(
        sandbox_id=new_id("sbx"),
        image="base",
        resources=Resources(vcpus=1, memory_mb=256, disk_mb=128, pids=128),
        trust=Trust.ZERO,
    )
