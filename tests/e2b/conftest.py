"""One scripted platform for all tests of this folder that need no real walls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.caddy import why_no_caddy
from tests.support.e2b import PATIENT, Tls, new_api_key, pointed_at, tls_platform
from tests.support.internet import Internet
from tests.support.platforms import Up, real_platform, scripted_platform, why_not_real

SETTINGS = {"SANDBOXER_CHARGING": "false", **PATIENT}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with scripted_platform(tmp_path_factory.mktemp("e2b") / "state", charging=False) as running:
        yield running


@pytest.fixture
def api_key(up: Up) -> Iterator[str]:
    key = new_api_key(up)
    with pointed_at(up, key):
        yield key


@pytest.fixture(scope="session")
def internet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Internet]:
    if why := why_not_real():
        pytest.skip(why)
    made = Internet(tmp_path_factory.mktemp("e2b-internet") / "internet")
    yield made
    made.close()


@pytest.fixture(scope="session")
def real_up(internet: Internet, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    state, settings = tmp_path_factory.mktemp("e2b-real") / "state", {**SETTINGS, **internet.settings}
    with real_platform(state, settings=settings, program=Internet.__module__) as running:
        yield running


@pytest.fixture(scope="module")
def real_key(real_up: Up, request: pytest.FixtureRequest) -> Iterator[str]:
    # Of an account for each file: requests are counted by account, and together they are many.
    key = new_api_key(real_up, "e2b-" + request.module.__name__.rpartition("_")[2])
    with pointed_at(real_up, key):
        yield key


@pytest.fixture(scope="session")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    """A platform by a domain, with TLS."""
    if why := why_not_real() or why_no_caddy():
        pytest.skip(why)
    with tls_platform(tmp_path_factory.mktemp("e2b-tls") / "state") as made:
        yield made
