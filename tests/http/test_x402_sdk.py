"""The Python client with a wallet and no key: it pays within its caps, and keeps the key."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.sdk import AsyncSandboxer, Sandboxer
from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.payers import Cap, EvmPayer
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.support.chains.evm import evm
from tests.support.http.served import Served
from tests.support.http.x402 import shop

__all__ = ["evm"]


@pytest.fixture
async def served(evm: Anvil, tmp_path: Path) -> AsyncIterator[Served]:
    async with shop(evm, tmp_path) as running:
        yield running


def payer(evm: Anvil, *, per_payment: int = 5_000_000, in_total: int = 5_000_000) -> tuple[EvmPayer, str]:
    wallet = evm.new_wallet(5_000_000)
    cap = Cap(network=evm.network, asset=evm.asset, per_payment=per_payment, in_total=in_total)
    return EvmPayer(wallet, [cap]), wallet


async def test_a_program_with_a_wallet_pays_for_its_sandbox_and_goes_on_with_its_key(
    served: Served, evm: Anvil
) -> None:
    wallet, key = payer(evm)

    def work() -> str:
        with Sandboxer(url=served.url, wallet=wallet) as client:
            assert not client.credentials.public_key
            sandbox = client.create(ttl="10m")
            assert client.credentials.public_key.startswith("sbx-pk-")
            assert sandbox.exec("echo hi").stdout == "hi\n"
            assert [p.purpose for p in client.payments.list()] == ["create"]
            return client.payments.top_up(1000).payment.state

    assert await asyncio.to_thread(work) == "confirmed"
    assert 5_000_000 - evm.balance(address_of(key)) == sum(wallet.spent.values())


async def test_the_same_with_asyncio(served: Served, evm: Anvil) -> None:
    wallet, _ = payer(evm)
    async with AsyncSandboxer(url=served.url, wallet=wallet) as client:
        bought = await client.payments.top_up(2000)
        assert bought.payment.sats == 2000
        assert (await client.account.me()).money.balance == 2000
        assert (await client.payments.get(bought.payment.id)).id == bought.payment.id
        assert [p.id async for p in client.payments.list()] == [bought.payment.id]
        assert {good.operation for good in await client.payments.goods()} >= {"createSandbox"}


async def test_nothing_is_signed_beyond_a_cap(served: Served, evm: Anvil) -> None:
    wallet, key = payer(evm, per_payment=1_000_000, in_total=1_500_000)
    async with AsyncSandboxer(url=served.url, wallet=wallet) as client:
        with pytest.raises(ApiError) as refused:
            await client.payments.top_up(1001)
        assert refused.value.status == 402
        await client.payments.top_up(1000)
        with pytest.raises(ApiError):
            await client.payments.top_up(600)
        await client.payments.top_up(500)
    assert evm.balance(address_of(key)) == 3_500_000


async def test_other_assets_are_not_paid_in(served: Served, evm: Anvil) -> None:
    wallet = evm.new_wallet(5_000_000)
    other = Cap(network=evm.network, asset="0x" + "12" * 20, per_payment=10**9, in_total=10**9)
    async with AsyncSandboxer(url=served.url, wallet=EvmPayer(wallet, [other])) as client:
        with pytest.raises(ApiError):
            await client.create()
