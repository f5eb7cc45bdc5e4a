"""Sandboxes that come last on the processor, on this host's own cgroups."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sandboxer.backends.contract import GivesWay
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.namespaces.cgroups import Cgroups, Hierarchies
from sandboxer.backends.namespaces.holdings import Precedence
from tests.support.walls import Maker

pytestmark = pytest.mark.asyncio(loop_scope="session")


def files(hierarchies: Hierarchies, *names: str) -> Cgroups:
    """A sandbox's folder as the kernel would make it."""
    folder = hierarchies.unified / "x" / "sbx_1"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("")
    return Cgroups(hierarchies, "x")


@pytest.mark.parametrize("is_v2", [True, False])
async def test_who_comes_last_is_idle_and_weighs_as_before_afterwards(tmp_path: Path, is_v2: bool) -> None:
    weight, value = ("cpu.weight", "50") if is_v2 else ("cpu.shares", "512")
    where = Hierarchies(tmp_path, frozenset({"cpu"} if is_v2 else ()), {} if is_v2 else {"cpu": tmp_path})
    cgroups = files(where, "cpu.idle", weight)
    cgroups.set_last("sbx_1", True, 0.5)
    assert (tmp_path / "x/sbx_1/cpu.idle").read_text() == "1"
    assert (tmp_path / "x/sbx_1" / weight).read_text() == ""
    assert cgroups.is_last("sbx_1")
    cgroups.set_last("sbx_1", False, 0.5)
    assert (tmp_path / "x/sbx_1/cpu.idle").read_text().startswith("0")
    assert (tmp_path / "x/sbx_1" / weight).read_text() == value


async def test_a_kernel_that_has_no_idle_groups_gets_the_least_weight(tmp_path: Path) -> None:
    cgroups = files(Hierarchies(tmp_path, frozenset({"cpu"}), {}), "cpu.weight")
    cgroups.set_last("sbx_1", True, 0.5)
    assert (tmp_path / "x/sbx_1/cpu.weight").read_text() == "1"


async def test_the_host_lets_some_come_last_and_others_not(backend: NamespacesBackend, make: Maker) -> None:
    cgroups = backend.dependencies.cgroups
    assert isinstance(backend, GivesWay)
    last, other = await make(), await make()
    await backend.give_way([last.id, "sbx_gone"])
    assert (cgroups.is_last(last.id), cgroups.is_last(other.id)) == (True, False)
    assert (await last.sh("echo runs")).stdout == "runs\n"
    await backend.give_way([other.id])
    assert (cgroups.is_last(last.id), cgroups.is_last(other.id)) == (False, True)
    await backend.give_way([])
    assert not cgroups.is_last(other.id)


async def test_limits_of_one_that_comes_last_can_be_changed(backend: NamespacesBackend, make: Maker) -> None:
    box = await make()
    await backend.give_way([box.id])
    await backend.resize(box.handle, replace(box.order.resources, vcpus=2.0))
    await backend.give_way([box.id])
    assert backend.dependencies.cgroups.is_last(box.id)
    await backend.give_way([])


async def test_one_that_comes_last_can_be_stopped_and_begun_again(
    backend: NamespacesBackend, make: Maker
) -> None:
    box = await make()
    await backend.give_way([box.id])
    await backend.stop(box.handle)
    await backend.resume(box.handle, box.order)
    assert not backend.dependencies.cgroups.is_last(box.id)


async def test_what_a_killed_server_left_last_is_found_by_the_next(
    backend: NamespacesBackend, make: Maker
) -> None:
    box = await make()
    await backend.give_way([box.id])
    Precedence(backend.dependencies).give_way([])
    assert not backend.dependencies.cgroups.is_last(box.id)


async def test_seconds_of_the_processor_are_counted_for_each_and_for_all(
    backend: NamespacesBackend, make: Maker
) -> None:
    box = await make()
    before, all_before = (await backend.processor_s())[box.id], await backend.processor_s_of_all()
    await box.python("sum(n * n for n in range(1_000_000))")
    assert (await backend.processor_s())[box.id] > before + 0.01
    assert await backend.processor_s_of_all() > all_before + 0.01
