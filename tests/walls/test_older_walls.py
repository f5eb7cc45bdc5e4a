"""What was started behind older walls goes on, and the operator is told which sandboxes these are."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.namespaces.box import is_behind, lacks_description, lacks_of_older, running_boxes
from sandboxer.backends.namespaces.settings import WALLS_VERSION
from tests.support.walls import Maker, Sandbox

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_sandbox_of_before_the_upgrade_is_named_until_it_was_resumed(
    make: Maker, backend: NamespacesBackend
) -> None:
    settings = backend.dependencies.settings

    def behind() -> set[str]:
        return {one.sandbox_id for one in running_boxes(settings) if is_behind(one)}

    box = await make()
    assert box.handle.data["walls"] == WALLS_VERSION
    assert box.id not in behind()
    # As the record of a server that did not count walls.
    record = settings.run_dir / box.id / "box.json"
    record.write_text(record.read_text().replace(f', "walls": {WALLS_VERSION}', ""))
    assert box.id in behind()
    (lack,) = lacks_of_older(running_boxes(settings))
    assert (lack.what, box.id in lack.why) == ("the newest walls", True)
    assert (await box.sh("echo still here")).stdout == "still here\n"
    await backend.stop(box.handle)
    assert box.id not in behind()
    again = Sandbox(backend, await backend.resume(box.handle, box.order), box.order)
    assert again.handle.data["walls"] == WALLS_VERSION
    assert box.id not in behind()


async def test_one_without_its_description_is_named(make: Maker, backend: NamespacesBackend) -> None:
    known = backend.dependencies.known[(await make()).id]
    assert not lacks_description(known)
    # As an older supervisor leaves its processes: nothing is mounted there, as in those of this test.
    old = replace(known, pid=os.getpid())
    assert lacks_description(old)
    (lack,) = lacks_of_older([known, old])
    assert (lack.what, old.sandbox_id in lack.why) == ("the description inside", True)
    assert "sandboxer resume ID" in lack.remedy
    # What ended meanwhile lacks nothing.
    assert not lacks_description(replace(known, pid=2**31 - 1))


async def test_only_what_runs_is_behind_walls(make: Maker, backend: NamespacesBackend) -> None:
    settings, box = backend.dependencies.settings, await make()
    assert box.id in {one.sandbox_id for one in running_boxes(settings)}
    known = backend.dependencies.known[box.id]
    assert is_behind(replace(known, walls=1))
    assert not is_behind(known)
    record = settings.run_dir / box.id / "box.json"
    record.write_text(record.read_text().replace(known.boot_id, "f" * len(known.boot_id)))
    assert box.id not in {one.sandbox_id for one in running_boxes(settings)}
    assert list(lacks_of_older([])) == []
