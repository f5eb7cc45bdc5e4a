"""The tools for the Vercel AI SDK, driven by the SDK itself with a model that replays a plan."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from testchains.evm import Anvil
from tests.support.chains.evm import evm
from tests.support.http.x402 import shop
from tests.support.languages import TYPESCRIPT, run

__all__ = ["evm"]
LONGEST_ADAPTER = 150
pytestmark = pytest.mark.slow


async def test_a_model_runs_the_whole_loop_by_the_ai_sdk(
    typescript: Path, evm: Anvil, tmp_path: Path
) -> None:
    async with shop(evm, tmp_path) as served:
        wallet = {"PAYER_KEY": evm.new_wallet(5_000_000), "NETWORK": evm.network, "ASSET": evm.asset}
        words = ["node", "--test", str(typescript / "test" / "ai.test.js")]
        told = {**os.environ, **wallet, "URL": served.url}
        said = await asyncio.to_thread(run, words, TYPESCRIPT, told)
    assert "# pass 2" in said


def test_the_adapter_is_short() -> None:
    assert len((TYPESCRIPT / "src" / "ai.ts").read_text().splitlines()) <= LONGEST_ADAPTER
