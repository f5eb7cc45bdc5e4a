"""The EVM chain of a test run: started by the first test that asks for it, shared by all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testchains.evm import Anvil, running_anvil, why_no_anvil


@pytest.fixture(scope="session")
def evm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Anvil]:
    if why := why_no_anvil():
        pytest.skip(why)
    with running_anvil(tmp_path_factory.mktemp("anvil")) as chain:
        yield chain
