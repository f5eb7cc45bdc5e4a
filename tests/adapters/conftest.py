"""One platform on real walls for all programs of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.support.e2b import PATIENT
from tests.support.platforms import Up, real_platform, why_not_real


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if why := why_not_real():
        pytest.skip(why)
    settings = {"SANDBOXER_CHARGING": "false", **PATIENT}
    with real_platform(tmp_path_factory.mktemp("adapters") / "state", settings=settings) as running:
        yield running


@pytest.fixture
def nothing_left(up: Up) -> Iterator[None]:
    """Every program removes what it made."""
    yield
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        assert not list(owner.list())
