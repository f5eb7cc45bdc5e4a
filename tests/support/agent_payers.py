"""Agents that pay for themselves, and platforms on real walls that sell to them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from embit import bip32
from sqlalchemy import select

from sandboxer.edges.cli.agent_wallets import Chosen, OwnCoins
from sandboxer.payments import tables
from sandboxer.payments.chains.configuration import Cap as CoinCap
from sandboxer.payments.wallet.agent import create_wallet
from sandboxer.sdk.agent import outside
from sandboxer.sdk.agent.progress import Order, Progress, Step, Way
from sandboxer.sdk.credentials import Credentials
from sandboxer.sdk.payers import Cap, EvmPayer
from sandboxer.settings import Settings
from testchains.evm import Anvil
from testchains.litecoin import Litecoin
from tests.support.agent_runs import Run
from tests.support.http.real import IMAGES, on_real_walls, why_not
from tests.support.http.served import Served

PASSWORD = "long enough"


@dataclass(frozen=True)
class Node:
    """Where one's own node is asked, and as whom."""

    url: str
    user: str


@asynccontextmanager
async def walls(folder: Path, settings: Settings, **more: Any) -> AsyncIterator[Served]:
    if why := why_not():
        pytest.skip(why)
    real = {"images_dir_given": IMAGES, "pool_size_mb": 800, "charging": True, "state_dir": folder / "state"}
    async with on_real_walls(settings.model_copy(update=real | more)) as served:
        yield served
        assert (await served.client.get("/v1/ledger/verify")).json()["is_whole"]
        assert not list(served.platform.sandboxes.repository.living())


def payer_of(chain: Anvil, key: str, most: int = 5_000_000) -> outside.PayerWallet:
    payer = EvmPayer(key, [Cap(network=chain.network, asset=chain.asset, per_payment=most, in_total=most)])
    return outside.PayerWallet(payer, payer.sign_text)


def buyer(
    served: Served, folder: Path, way: Way, *, wallet: Any = None, coins: Any = None, **more: Any
) -> Run:
    around = outside.surroundings(Credentials("", "", served.url), wallet=wallet, coins=coins)
    wanted = {"depth": 1, "task": "echo paid for", "url": served.url, "way": way, "budget_sats": 2_000}
    return Run(folder / "run.json", Order(**wanted | more), around)


async def payments(served: Served) -> list[dict[str, Any]]:
    """All that were ever taken."""
    return await served.platform.store.read(
        lambda conn: [dict(row._mapping) for row in conn.execute(select(tables.payments))]
    )


def selling_for(litecoin: Litecoin, folder: Path, **policy: Any) -> Settings:
    (folder / "password").write_text(litecoin.password)
    xpub = bip32.HDKey.from_seed(str(folder).encode().ljust(64)[-64:]).derive("m/84h/1h/0h").to_public()
    node = {
        "rpc": litecoin.url,
        "network": "regtest",
        "user": litecoin.user,
        "password_file": str(folder / "password"),
        "xpub": xpub.to_base58(),
        "confirmations": 2,
    }
    return Settings.model_validate(
        {
            "host": "127.0.0.1",
            "port": 0,
            "chains": {"LTC": node},
            "fixed_rates": {"BTC": "60000", "LTC": "80"},
            "invoices": {"poll_s": 0.1} | policy,
            "limit_auth": 1_000,
        }
    )


def own_coins(litecoin: Litecoin, folder: Path) -> OwnCoins:
    """A wallet of one's own with some coins, as the command line opens it."""
    made = create_wallet(folder / "agent.wallet", PASSWORD)
    made.set_cap("LTC", CoinCap(10**9, 10**9))
    litecoin.pay(made.seed.account("LTC", "regtest").address(0), 10**8)
    litecoin.mine()
    (folder / "wallet.password").write_text(PASSWORD)
    return opened_by(folder, Node(litecoin.url, litecoin.user))


def opened_by(folder: Path, node: Node | Litecoin) -> OwnCoins:
    """That wallet again, with whatever stands in the file of its password now."""
    return OwnCoins(chosen(folder, node))


def chosen(folder: Path, node: Node | Litecoin) -> Chosen:
    """What the command line would say of it."""
    return Chosen(
        wallet=folder / "agent.wallet",
        password_file=folder / "wallet.password",
        key_file=None,
        network=None,
        asset=None,
        most=None,
        tokens=(),
        coin="LTC",
        coin_network="regtest",
        node={"rpc": node.url, "esplora": None, "wallet_rpc": None, "user": node.user},
        node_password_file=folder / "password",
    )


def mining(litecoin: Litecoin) -> Any:
    """A block whenever the run looks, once something was sent."""

    def watch(known: Progress) -> None:
        if known.step is Step.POLL_CONFIRMATION:
            litecoin.mine()

    return watch


async def outputs(served: Served) -> int:
    """How many reached the addresses of all invoices."""
    ids = [one["id"] for one in (await served.client.get("/v1/invoices")).json()["invoices"]]
    shown = [(await served.client.get(f"/v1/invoices/{id}")).json() for id in ids]
    return sum(len(one["payments"]) for one in shown)


async def first_invoice(served: Served) -> dict[str, Any]:
    return dict((await served.client.get("/v1/invoices")).json()["invoices"][-1])
