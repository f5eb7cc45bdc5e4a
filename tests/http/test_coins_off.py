"""A coin whose node is away or another is off with a reason, everywhere one looks, and on again by itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from embit import bip32

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from testchains.bitcoin.chain import Bitcoin
from tests.support.http.served import Served, eventually, serving


@pytest.fixture
def away() -> Iterator[Bitcoin]:
    """A node of its own, for it is away when the platform starts."""
    with Bitcoin() as node:
        node.pause()
        yield node


def chains(node: Bitcoin, folder: Path, **more: Any) -> dict[str, Any]:
    (folder / "password").write_text(node.password)
    xpub = bip32.HDKey.from_seed(b"coins off".ljust(64)).derive("m/84h/1h/0h").to_public().to_base58()
    login = {"user": node.user, "password_file": str(folder / "password")}
    return {"BTC": {"rpc": node.url, "network": "regtest", "xpub": xpub, **login, **more}}


@pytest.fixture
async def shop(away: Bitcoin, tmp_path: Path) -> AsyncIterator[Served]:
    settings = Settings(
        state_dir=tmp_path,
        port=0,
        chains=chains(away, tmp_path),
        fixed_rates={"BTC": "60000"},
        limit_auth=1000,
    )
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        yield served


async def ask(served: Served) -> httpx.Response:
    return await served.client.http.post("/v1/invoices", json={"currency": "BTC", "sats": 5000})


async def get(served: Served, path: str) -> Any:
    return (await served.client.http.get(path)).json()


async def test_a_node_that_is_away_at_the_start_is_told_of_and_used_once_it_is_there(
    away: Bitcoin, shop: Served
) -> None:
    refused = await ask(shop)
    assert (refused.status_code, refused.json()["code"]) == (503, "chain_unavailable"), refused.text
    (coin,) = (await get(shop, "/v1/pricing"))["coins"]
    assert (coin["coin"], coin["is_on"]) == ("BTC", False)
    assert "no connection" in coin["reason"]
    (rate,) = [line for line in (await get(shop, "/v1/rates"))["rates"] if line["asset"] == "BTC"]
    assert (rate["usd"], rate["off"]) == ("60000", coin["reason"])
    health = await get(shop, "/health")
    assert (health["status"], health["checks"]["invoices/BTC"]) == ("ok", "failing")
    assert (await get(shop, "/v1/gift-cards/pricing"))["currencies"] == []

    away.resume()
    await eventually(lambda: shop.platform.payments.invoices.why_off() == {"BTC": None}, seconds=60)
    assert (await ask(shop)).status_code == 201
    assert (await get(shop, "/v1/pricing"))["coins"] == [{"coin": "BTC", "is_on": True, "reason": None}]
    assert (await get(shop, "/v1/gift-cards/pricing"))["currencies"] == ["BTC"]
