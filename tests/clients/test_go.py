"""The Go client against a real server, by its own tests."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from testchains.evm import Anvil
from tests.support.chains.evm import evm
from tests.support.http.x402 import shop
from tests.support.languages import GO, run
from tests.support.platforms import Up

__all__ = ["evm"]
OF_A_SERVER = 9


@pytest.fixture(autouse=True)
def go() -> None:
    if shutil.which("go") is None:
        pytest.skip("no go (apt-get install golang-go)")


def test_its_own_tests_pass_against_a_real_server(up: Up) -> None:
    said = run(["go", "test", "-count=1", "-v", "-run", "Test[^4]*$", "./..."], GO, up.environment)
    assert said.count("--- PASS") == OF_A_SERVER
    assert "--- FAIL" not in said


async def test_a_402_says_what_it_costs(evm: Anvil, tmp_path: Path) -> None:
    async with shop(evm, tmp_path) as served:
        words = ["go", "test", "-count=1", "-v", "-run", "TestA402SaysWhatItCosts", "./..."]
        said = await asyncio.to_thread(run, words, GO, {**os.environ, "PAID_URL": served.url})
    assert said.count("--- PASS") == 1


def test_it_is_written_as_go_is_written(up: Up) -> None:
    assert run(["gofmt", "-l", "."], GO, up.environment) == ""
    run(["go", "vet", "./..."], GO, up.environment)
