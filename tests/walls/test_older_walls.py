"""What was started behind older walls goes on, and the operator is told which sandboxes these are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.namespaces.box import Stage, behind_older_walls, is_behind, lack_of_new_walls
from sandboxer.backends.namespaces.settings import WALLS_VERSION
from tests.support.walls import Maker, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_sandbox_of_before_the_upgrade_is_named_until_it_was_resumed(
    make: Maker, backend: NamespacesBackend
) -> None:
    settings = backend.dependencies.settings
    box = await make()
    assert box.handle.data["walls"] == WALLS_VERSION
    assert box.id not in {one.sandbox_id for one in behind_older_walls(settings)}
    # As the record of a server that did not count walls.
    record = settings.run_dir / box.id / "box.json"
    record.write_text(record.read_text().replace(f', "walls": {WALLS_VERSION}', ""))
    assert box.id in {one.sandbox_id for one in behind_older_walls(settings)}
    lack = lack_of_new_walls(behind_older_walls(settings))
    assert lack is not None
    assert box.id in lack.why
    assert (await box.sh("echo still here")).stdout == "still here\n"
    await backend.stop(box.handle)
    assert box.id not in {one.sandbox_id for one in behind_older_walls(settings)}
    again = Sandbox(backend, await backend.resume(box.handle, box.order), box.order)
    assert again.handle.data["walls"] == WALLS_VERSION
    assert box.id not in {one.sandbox_id for one in behind_older_walls(settings)}


async def test_only_what_runs_is_behind_walls(make: Maker, backend: NamespacesBackend) -> None:
    box = backend.dependencies.known[(await make()).id]
    old = replace(box, walls=1)
    assert is_behind(old, box.boot_id)
    assert not is_behind(box, box.boot_id)
    assert not is_behind(old, "another boot")
    assert not is_behind(replace(old, stage=Stage.STOPPED), box.boot_id)
    assert lack_of_new_walls([]) is None
