"""Backends that others wrote: found by an entry point or a file, and refused in words when they are wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AsyncExitStack
from decimal import Decimal
from pathlib import Path

import pytest

from sandboxer.backends.contract import Order, Resources, Trust
from sandboxer.backends.registry import (
    EXPERIMENTAL,
    SHIPPED,
    deviations_of,
    experimental_reason,
    find_extension,
    find_opener,
    known,
)
from sandboxer.backends.reports import CostEstimate, CostPart, estimate_of, torn_down
from sandboxer.backends.scripted import Scripted
from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.kernel.values import new_id
from sandboxer.settings import Settings
from sandboxer.wiring.backends import open_backends
from sandboxer.wiring.extensions import load_extensions

RACK = """
id: ext.rack
title: The rack in the cellar
kind: self-hosted
handler: rack:open_backend
capabilities: [stop, freeze]
settings:
  site: cellar
"""
# A handler of one's own, beside the file that names it.
MODULE = """
from contextlib import asynccontextmanager
from sandboxer.backends.scripted import Scripted

DEVIATIONS = {"a_terminal_is_a_terminal_of_the_size_asked_for": "it has none"}

class Silent(Scripted):
    estimate_cost = None

@asynccontextmanager
async def open_backend(settings, *, site):
    backend = Scripted(name="ext.rack")
    backend.site = site
    yield backend
"""


def make_order() -> Order:
    resources = Resources(vcpus=1, memory_mb=64, disk_mb=64, pids=16)
    return Order(sandbox_id=new_id("sbx"), image="base", resources=resources, trust=Trust.ZERO)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rack.yaml").write_text(RACK)
    (tmp_path / "rack.py").write_text(MODULE)
    return tmp_path


async def test_a_file_names_a_backend_that_a_platform_opens_with_its_settings(folder: Path) -> None:
    settings = Settings(extensions_dir=folder, backends=("ext.rack",))
    async with AsyncExitStack() as closing:
        opened = await open_backends(settings, closing)
        assert list(opened) == ["ext.rack"]
        assert opened["ext.rack"].site == "cellar"  # type: ignore[attr-defined]
        handle = await opened["ext.rack"].provision(make_order())
        await (await opened["ext.rack"].guest(handle)).ping()
    files = load_extensions(folder)
    assert find_extension("ext.rack", files).source == str(folder / "rack.yaml")
    assert list(deviations_of("ext.rack", files)) == ["a_terminal_is_a_terminal_of_the_size_asked_for"]


@pytest.mark.parametrize(
    ("was", "becomes", "words"),
    [
        ("kind: self-hosted", "kind: rented", "'rented' is none of self-hosted, saas-metered"),
        ("capabilities: [stop", "capabilities: [fly", "'fly' is none of stop, freeze"),
        ("handler: rack:open_backend", "handler: rack", "does not look like"),
        ("title:", "titel:", "did you mean 'title'"),
        ("id: ext.rack", "id: ext.oci", "ext.oci is shipped"),
        ("id: ext.rack", "id: rack", "does not look like"),
        ("handler: rack:open_backend\n", "", "the key 'handler' is missing"),
        ("handler:", "handlr:", "unknown key 'handlr'; did you mean 'handler'?"),
        ("id: ext.rack\n", "", "the key 'id' is missing"),
    ],
)
def test_a_file_that_is_wrong_is_refused_with_the_place_in_it(
    folder: Path, was: str, becomes: str, words: str
) -> None:
    (folder / "rack.yaml").write_text(RACK.replace(was, becomes))
    with pytest.raises(InvalidRequest) as refused:
        load_extensions(folder)
    assert words in str(refused.value)
    assert f"{folder / 'rack.yaml'}:" in str(refused.value)


@pytest.mark.parametrize(
    ("was", "becomes", "words"),
    [
        ("site: cellar", "siet: cellar", "siet"),
        ("[stop, freeze]", "[memory]", "declares what its handler does not implement: memory"),
        ("rack:open_backend", "rack:open_it", "has no open_it"),
        ("rack:open_backend", "no_such_module:open_backend", "there is no module no_such_module"),
        ("id: ext.rack", "id: ext.other", "calls itself ext.rack"),
    ],
)
async def test_what_does_not_do_as_its_file_says_is_not_opened(
    folder: Path, was: str, becomes: str, words: str
) -> None:
    (folder / "rack.yaml").write_text(RACK.replace(was, becomes))
    files = load_extensions(folder)
    async with AsyncExitStack() as closing:
        with pytest.raises(NotAvailable) as refused:
            await closing.enter_async_context(find_opener(next(iter(files)), files)(Settings()))
    assert words in str(refused.value)
    assert str(folder / "rack.yaml") in str(refused.value)
    # Whoever starts the platform can mend it, and finds nothing else to ask for.
    assert "`handler`" in refused.value.facts["hint"]


def test_an_experimental_one_says_why_by_its_file_or_by_its_module(folder: Path) -> None:
    assert experimental_reason("ext.rack", load_extensions(folder)) is None
    (folder / "rack.py").write_text(MODULE + '\nEXPERIMENTAL = "it stands in a cellar"\n')
    assert experimental_reason("ext.rack", load_extensions(folder)) == "it stands in a cellar"
    (folder / "rack.yaml").write_text(RACK + "experimental: nobody tried it\n")
    files = load_extensions(folder)
    assert known(files)["ext.rack"].experimental == "nobody tried it"
    assert experimental_reason("ext.rack", files) == "nobody tried it"


def test_those_shipped_that_are_experimental_say_so_before_they_are_loaded() -> None:
    assert set(EXPERIMENTAL) <= set(SHIPPED)
    assert {name: one.experimental for name, one in known().items() if one.experimental} == EXPERIMENTAL
    assert experimental_reason("ext.namespaces") is None


async def test_one_that_costs_money_has_to_say_how_much(folder: Path) -> None:
    (folder / "rack.yaml").write_text(RACK.replace("self-hosted", "saas-metered"))
    files = load_extensions(folder)
    async with find_opener("ext.rack", files)(Settings()):
        pass
    (folder / "rack.py").write_text(MODULE.replace("Scripted(name", "Silent(name"))
    async with AsyncExitStack() as closing:
        with pytest.raises(NotAvailable, match="estimates no cost"):
            await closing.enter_async_context(find_opener("ext.rack", files)(Settings()))


async def test_an_estimate_is_what_its_parts_come_to_to_the_last_digit() -> None:
    class Rented(Scripted):
        async def estimate_cost(self, order: Order, *, hours: Decimal) -> CostEstimate:
            cores = Decimal("0.0504") * Decimal(order.resources.vcpus) * hours
            start = CostPart(what="creation", amount=Decimal("0.0000001"))
            return CostEstimate(unit="usd", parts=(start, CostPart(what="vcpu", amount=cores)))

    order = make_order()
    estimate = await estimate_of(Rented(), order, hours=Decimal("0.1"))
    assert estimate is not None
    assert (estimate.amount, estimate.unit) == (Decimal("0.0050401"), "usd")
    assert [part.what for part in estimate.parts] == ["creation", "vcpu"]
    # On this host it costs nothing more, whatever it is.
    free = await estimate_of(Scripted(), order, hours=Decimal(24))
    assert free is not None
    assert (free.amount, free.parts) == (Decimal(0), ())
    for hours in ("-1", "NaN", "Infinity"):
        with pytest.raises(InvalidRequest, match="no length of time"):
            await estimate_of(Rented(), order, hours=Decimal(hours))


async def test_who_cannot_say_what_it_removed_still_removes() -> None:
    class Silent(Scripted):
        teardown_with_report = None  # type: ignore[assignment]

        async def teardown(self, sandbox_id: str) -> None:
            self.boxes.pop(sandbox_id, None)

    backend = Silent()
    handle = await backend.provision(make_order())
    assert await torn_down(backend, handle.sandbox_id) is None
    assert await backend.inventory() == []


def test_what_others_can_write_to_is_not_run(folder: Path) -> None:
    for path in (folder / "rack.py", folder / "rack.yaml", folder):
        mode = path.stat().st_mode
        path.chmod(mode | 0o002)
        with pytest.raises(InvalidRequest, match="somebody else can write to it"):
            load_extensions(folder)
        path.chmod(mode)
    if os.geteuid() == 0:
        os.chown(folder / "rack.py", 1234, -1)
        with pytest.raises(InvalidRequest, match="somebody else can write to it"):
            load_extensions(folder)


def test_a_missing_extra_names_itself(folder: Path) -> None:
    (folder / "rack.py").write_text("import not_installed_at_all\n" + MODULE)
    (folder / "rack.yaml").write_text(RACK + "package: sandboxer-rack\nextras: [gpu]\n")
    files = load_extensions(folder)
    with pytest.raises(NotAvailable, match="not_installed_at_all is not installed") as refused:
        find_opener("ext.rack", files)
    assert refused.value.facts["hint"] == "Install what it needs: pip install 'sandboxer-rack[gpu]'"
    (folder / "rack.yaml").write_text(RACK)
    with pytest.raises(NotAvailable) as refused:
        find_opener("ext.rack", load_extensions(folder))
    assert refused.value.facts["hint"] == "Install what it needs: pip install not_installed_at_all"


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Path]:
    """A place of packages, in which one announces a backend and needs what only its extra brings."""
    info = tmp_path / "sandboxer_shelf-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: sandboxer-shelf\nVersion: 1\nProvides-Extra: cloud\n"
        "Requires-Dist: not-installed-at-all>=2 ; extra == 'cloud'\n"
    )
    (info / "entry_points.txt").write_text("[sandboxer.backends]\next.shelf = shelf:open_backend\n")
    (tmp_path / "shelf.py").write_text("import not_installed_at_all.client\n")
    sys.path.append(str(tmp_path))
    yield tmp_path
    sys.path.remove(str(tmp_path))


def test_the_extra_of_an_installed_package_is_found_by_what_it_brings(installed: Path) -> None:
    assert known()["ext.shelf"].source == "package sandboxer-shelf"
    with pytest.raises(NotAvailable) as refused:
        find_opener("ext.shelf")
    assert refused.value.facts["hint"] == "Install what it needs: pip install 'sandboxer-shelf[cloud]'"


def test_an_unknown_one_names_what_is_near(folder: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"did you mean ext\.rack"):
        find_extension("ext.rak", load_extensions(folder))
    with pytest.raises(InvalidRequest, match="there is no folder"):
        load_extensions(folder / "nowhere")
