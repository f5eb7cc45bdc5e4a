"""Secrets of an account that has paid nothing: a few, and no more than a new keypair should be worth."""

from __future__ import annotations

import pytest

from sandboxer.accounts.storage import UNFUNDED_BYTES, UNFUNDED_COUNT
from sandboxer.kernel.errors import InsufficientCredit
from tests.support.charging import fund, paying
from tests.support.sandboxes import ALICE, OWNER, OpenPlatform, backend, clock, open_one  # noqa: F401


async def test_an_account_without_credit_keeps_few_secrets_until_it_pays(
    open_one: OpenPlatform,
) -> None:
    async with paying(open_one) as platform:
        vault = platform.access.secrets.vault
        for number in range(UNFUNDED_COUNT):
            await vault.put(f"S{number}", "x", ALICE)
        with pytest.raises(InsufficientCredit) as refused:
            await vault.put("ONE_MORE", "x", ALICE)
        assert "add credit" in str(refused.value.facts["hint"])
        # In place of one that it has, as long as all are small together.
        await vault.put("S0", "y" * 1000, ALICE)
        with pytest.raises(InsufficientCredit):
            await vault.put("S0", "y" * UNFUNDED_BYTES, ALICE)
        await vault.remove("S1", ALICE)
        await vault.put("ONE_MORE", "x", ALICE)
        await fund(platform, 1, id="a-sat")
        await vault.put("S0", "y" * UNFUNDED_BYTES, ALICE)
        await vault.put("ANOTHER", "x", ALICE)
        assert len(await vault.list(ALICE)) == UNFUNDED_COUNT + 1


async def test_where_nobody_pays_and_for_the_owner_there_is_no_such_bound(
    open_one: OpenPlatform,
) -> None:
    async with paying(open_one) as platform:
        for number in range(UNFUNDED_COUNT + 1):
            await platform.access.secrets.vault.put(f"S{number}", "x", OWNER)
    async with open_one() as platform:
        for number in range(UNFUNDED_COUNT + 1):
            await platform.access.secrets.vault.put(f"S{number}", "x", ALICE)
