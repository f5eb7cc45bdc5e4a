from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from embit import bip32

from sandboxer.payments.chains.addresses import network_of
from sandboxer.payments.chains.bitcoin import read_account_key
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.payments.chains.monero import MoneroWallet
from testchains.litecoin import Litecoin
from testchains.monero import Monero


@pytest.fixture
async def litecoin_chain(litecoin: Litecoin, request: pytest.FixtureRequest) -> AsyncIterator[CoreRpc]:
    """Addresses of its own for each test: the seed is the test's name."""
    network = network_of("LTC", "regtest")
    seed = bip32.HDKey.from_seed(request.node.nodeid.encode().ljust(64, b"\0")[-64:])
    xpub = seed.derive("m/84h/1h/0h").to_public().to_base58()
    chain = CoreRpc(
        network,
        litecoin.url,
        user=litecoin.user,
        password=litecoin.password,
        keys=read_account_key(xpub, network),
    )
    yield chain
    await chain.close()


@pytest.fixture
async def monero_chain(monero: Monero) -> AsyncIterator[MoneroWallet]:
    chain = MoneroWallet(
        monero.wallet_url, user=monero.user, password=monero.password, daemon_url=monero.daemon_url
    )
    yield chain
    await chain.close()
