"""The TypeScript client with an account of viem: it pays within its caps, and keeps the key it is given."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path

from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.support.chains.evm import evm
from tests.support.http.x402 import shop
from tests.support.languages import TYPESCRIPT, run

__all__ = ["evm"]


async def test_a_program_with_an_account_of_viem_pays_within_its_caps(
    typescript: Path, evm: Anvil, tmp_path: Path
) -> None:
    key = evm.new_wallet(5_000_000)
    async with shop(evm, tmp_path) as served:
        told = {"PAYER_KEY": key, "NETWORK": evm.network, "ASSET": evm.asset, "URL": served.url}
        words = ["node", "--test", str(typescript / "test" / "payer.test.js")]
        said = await asyncio.to_thread(run, words, TYPESCRIPT, {**os.environ, **told})
    assert "# pass 4" in said
    spent = [int(one) for one in re.findall(r"spent=(\d+)", said)]
    assert len(spent) == 1
    assert 5_000_000 - evm.balance(address_of(key)) == sum(spent) + 1_500_000
