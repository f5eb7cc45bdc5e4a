"""One scripted platform for the tests of this folder that need no real walls, and one real."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.e2b import PATIENT
from tests.support.platforms import Up, real_platform, scripted_platform, why_not_real
from tests.support.unsandbox import Client, new_key

SETTINGS = {"SANDBOXER_CHARGING": "false", **PATIENT}


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with scripted_platform(tmp_path_factory.mktemp("unsandbox") / "state", charging=False) as running:
        yield running


@pytest.fixture(scope="module")
def client(up: Up) -> Client:
    return Client(up, new_key(up))


@pytest.fixture(scope="session")
def real_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if why := why_not_real():
        pytest.skip(why)
    state = tmp_path_factory.mktemp("unsandbox-real") / "state"
    with real_platform(state, settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="session")
def real(real_up: Up) -> Client:
    return Client(real_up, new_key(real_up), by_name=True)
