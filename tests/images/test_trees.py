"""A disk is a layer over one tree: a sandbox goes on over its own when the image has been built anew."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

from sandboxer.backends.contract import Handle
from sandboxer.backends.guest import Command, Output
from sandboxer.backends.namespaces import NamespacesBackend, open_backend
from tests.support.real_backend import (
    IMAGES_DIR,
    clear,
    make_order,
    remove_leftovers,
    require_walls,
    settings_for,
    state_folder,
)


def lay_tree(images: Path, name: str) -> None:
    """A tree that shares its files with the base image and carries its own name."""
    root = images / name / "rootfs"
    root.mkdir(parents=True)
    subprocess.run(["cp", "-al", f"{IMAGES_DIR}/base/rootfs/.", root], check=True)
    (root / "etc/tree").write_text(name)


def point(images: Path, tree: str) -> None:
    (images / "next").symlink_to(tree)
    (images / "next").rename(images / "base")


async def tree_inside(backend: NamespacesBackend, handle: Handle) -> str:
    guest = await backend.guest(handle)
    async with await guest.run(Command(argv=("/bin/cat", "/etc/tree")), process_id="prc_1") as process:
        return b"".join([item.data async for item in process.output() if isinstance(item, Output)]).decode()


async def test_a_resumed_sandbox_stays_on_its_tree_and_a_new_one_gets_the_new() -> None:
    require_walls()
    with state_folder() as state:
        images = state / "images"
        lay_tree(images, "base@one")
        lay_tree(images, "base@two")
        point(images, "base@one")
        async with open_backend(
            replace(settings_for(state, pool_size_mb=1024), images_dir=images)
        ) as backend:
            order = make_order()
            old = await backend.provision(order)
            await backend.stop(old)
            point(images, "base@two")
            old = await backend.resume(old, order)
            new = await backend.provision(make_order())
            assert await tree_inside(backend, old) == "base@one"
            assert await tree_inside(backend, new) == "base@two"
            await clear(backend)
        remove_leftovers(backend)
