"""One scripted platform for all client tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.platforms import Up, scripted_platform


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with scripted_platform(tmp_path_factory.mktemp("platform") / "state") as running:
        yield running


@pytest.fixture
def client(up: Up) -> Iterator[Sandboxer]:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as made:
        yield made


@pytest.fixture
def sandbox(client: Sandboxer) -> Iterator[Sandbox]:
    with client.create() as made:
        yield made
