"""Fixtures every room's tests use: a store on each database, and the test chains."""

from __future__ import annotations

import gc
import signal
import sys
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxer.store.engine import Store, open_store
from tests.chains.fixtures import bitcoin, dogecoin, litecoin, monero  # noqa: F401
from tests.servers import leftovers
from tests.servers.postgres import running_postgres, why_no_postgres
from tests.servers.schemas import PostgresDatabases, copied_schema
from tests.servers.trust import shared_trust
from tests.side_by_side import ByRoom, in_order


def pytest_configure() -> None:
    """Told to end, by `timeout` or by whoever runs us, the run still takes down what it has put up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell has its background jobs ignore it, and so would every command that the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByRoom:
    config.option.loadscopereorder = False  # `in_order` has done it
    return ByRoom(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = in_order(items)


def pytest_collection_finish() -> None:
    """Back to what the server runs with: a library that signs for tests raises the limit a hundredfold when
    it is imported, and hostile JSON then overflows the C stack instead of being refused."""
    sys.setrecursionlimit(1000)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is imported stays until the end: the collector need not walk it again for every few tests."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that ended badly leaves servers, sandboxes, mounts and loops: the run takes them with it."""
    leftovers.own(tmp_path_factory.getbasetemp())
    yield
    if left := leftovers.clear():
        warnings.warn(f"tests left behind, and it was removed: {left}", stacklevel=1)


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A private PostgreSQL server, started once for the whole run."""
    if why := why_no_postgres():
        pytest.skip(why)
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_databases(postgres_url: str) -> PostgresDatabases:
    return PostgresDatabases(postgres_url)


@pytest.fixture(scope="session", autouse=True)
def _made_once() -> Iterator[None]:
    """What every platform of every test would make anew, and always the same."""
    with copied_schema(), shared_trust():
        yield


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database of its own for each test, on each kind: migrated on PostgreSQL, none yet on SQLite."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/sandboxer.db"
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    name = databases.take()
    yield databases.url(name)
    databases.give_back(name)


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_database_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """For tests of the migrations themselves."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/sandboxer.db"
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    name = databases.make_empty()
    yield databases.url(name)
    databases.drop(name)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    opened = open_store(database_url)
    try:
        yield opened
    finally:
        await opened.close()
