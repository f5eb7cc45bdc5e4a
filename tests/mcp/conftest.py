"""One scripted platform for the tests of this folder, and a token of an account."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.mcp import token_of
from tests.support.platforms import Up, scripted_platform


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with scripted_platform(
        tmp_path_factory.mktemp("platform") / "state", webhook_allow_private=True
    ) as running:
        yield running


@pytest.fixture(scope="module")
def token(up: Up) -> str:
    return token_of(up, "agents")
