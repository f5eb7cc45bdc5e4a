"""One scripted platform for the clients of other languages, and what they are built to."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.languages import built_typescript, packed_typescript
from tests.support.platforms import Up, scripted_platform


@pytest.fixture(scope="module")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with scripted_platform(tmp_path_factory.mktemp("platform") / "state") as running:
        yield running


@pytest.fixture(scope="session")
def typescript() -> Path:
    return built_typescript()


@pytest.fixture(scope="session")
def package(typescript: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The TypeScript client as it is published."""
    return packed_typescript(tmp_path_factory.mktemp("package"))
