"""Fixtures every package's tests use: a store on each database, and the test chains."""

from __future__ import annotations

import gc
import getpass
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# What fixtures and builders assert is told as fully as what tests do; before any of them is imported.
pytest.register_assert_rewrite("tests.support")

from sandboxer.store.engine import Store, open_store
from tests.support import leftovers
from tests.support.chains.fixtures import bitcoin, dogecoin, litecoin, monero  # noqa: F401
from tests.support.forking import end_forking
from tests.support.http.flows import pytest_runtest_call, pytest_runtest_teardown  # noqa: F401
from tests.support.postgres import running_postgres, why_no_postgres
from tests.support.profiles import shared_profiles
from tests.support.rings import has_no_unit, is_unit, unreviewed
from tests.support.schemas import PostgresDatabases, copied_schema
from tests.support.side_by_side import ByRoom, in_order
from tests.support.statements import shared_statements
from tests.support.trust import shared_derivations, shared_trust
from tests.support.workers import fork_workers

# Beside other tests a process may get no turn for longer than an example may take by default.
settings.register_profile("side by side", deadline=None)
settings.load_profile("side by side")

_skipped: list[tuple[str, str]] = []


def pytest_configure() -> None:
    """Told to end, by `timeout` or by whoever runs us, the run still takes down what it has put up."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # A shell has its background jobs ignore it, and so would every command that the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_sessionstart(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput"):
        leftovers.clear_dead_runs(Path(tempfile.gettempdir()) / f"pytest-of-{getpass.getuser()}")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: list[Any]) -> None:
    fork_workers(specs)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByRoom:
    config.option.loadscopereorder = False  # `in_order` has done it
    return ByRoom(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--unit", action="store_true", help="what needs neither root nor another program")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        _skipped.append((report.nodeid, report.longrepr[2]))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput") and "CI" in os.environ and unreviewed(_skipped):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """What the ring leaves out whole is not imported either."""
    is_left_out = config.getoption("--unit") and has_no_unit(collection_path.relative_to(config.rootpath))
    return True if is_left_out else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--unit"):
        left_out = [item for item in items if not is_unit(item)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if is_unit(item)]
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
        # Every platform that starts makes some ten thousand things that stay as long as it does.
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Says what tests have to tell though they passed, such as the seeds they drew, and in CI which skips
    fail the run; also of other processes."""
    for reports in list(terminalreporter.stats.values()):
        for report in reports:
            if getattr(report, "when", "") == "call":
                for name, value in report.user_properties:
                    if name == "told":
                        terminalreporter.write_line(str(value))
    for line in unreviewed(_skipped) if "CI" in os.environ else ():
        terminalreporter.write_line(f"skipped, and nobody has reviewed why: {line}", red=True)


@pytest.fixture(scope="session", autouse=True)
def _nothing_stays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A test that ended badly leaves servers, sandboxes, mounts and loops: the run takes them with it."""
    leftovers.own(tmp_path_factory.getbasetemp())
    with leftovers.own_temporary_files():
        yield
    if left := leftovers.clear():
        warnings.warn(f"tests left behind, and it was removed: {left}", stacklevel=1)


@pytest.fixture(scope="session", autouse=True)
def _forking_ends() -> Iterator[None]:
    yield
    end_forking()


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A private PostgreSQL server, started once for the whole run."""
    if why := why_no_postgres():
        pytest.skip(why)
    with running_postgres() as url:
        yield url


@pytest.fixture(scope="session")
def postgres_databases(postgres_url: str) -> Iterator[PostgresDatabases]:
    databases = PostgresDatabases(postgres_url)
    yield databases
    databases.close()


@pytest.fixture(scope="session", autouse=True)
def _made_once() -> Iterator[None]:
    """What every platform of every test would make anew, and always the same."""
    with copied_schema(), shared_trust(), shared_statements(), shared_derivations(), shared_profiles():
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
