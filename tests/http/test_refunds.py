"""A platform with a hot wallet: what it pays by itself and what it leaves to the operator, over HTTP."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.payments.tables import invoices
from sandboxer.payments.wallet.agent import create_wallet
from sandboxer.settings import Settings
from testchains.litecoin import Litecoin
from tests.support.http.served import Served, serving

LTC = 10**8


@pytest.fixture
async def shop(litecoin: Litecoin, tmp_path: Path) -> AsyncIterator[Served]:
    (tmp_path / "node").write_text(litecoin.password)
    (tmp_path / "password").write_text("long enough\n")
    wallet = create_wallet(tmp_path / "hot.wallet", "long enough")
    settings = Settings(
        state_dir=tmp_path / "state",
        port=0,
        chains={
            "LTC": {
                "rpc": litecoin.url,
                "network": "regtest",
                "user": litecoin.user,
                "password_file": str(tmp_path / "node"),
                "xpub": wallet.seed.account("LTC", "regtest").xpub(),
                "confirmations": 2,
            }
        },
        hot_wallet={
            "file": str(tmp_path / "hot.wallet"),
            "password_file": str(tmp_path / "password"),
            "caps": {"LTC": {"payment": "1", "day": "3"}},
        },
        fixed_rates={"BTC": "60000", "LTC": "80"},
        invoices={"poll_s": 0.1},
        limit_auth=1000,
    )
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        yield served


async def paid_late(shop: Served, litecoin: Litecoin, amount: int) -> tuple[str, str]:
    """The id of an invoice that was paid after its hour, and where its refund goes."""
    home = litecoin.call("getnewaddress")
    body = {"currency": "LTC", "sats": 1_000_000, "refund_address": home}
    bill = (await shop.client.http.post("/v1/invoices", json=body)).json()
    past = shop.platform.clock.now() - timedelta(hours=2)
    aged = {"created_at": past - timedelta(hours=1), "expires_at": past}
    await shop.platform.store.write(
        lambda conn: conn.execute(update(invoices).where(invoices.c.id == bill["id"]).values(**aged))
    )
    await look(shop, bill["id"], "expired")
    litecoin.pay(bill["address"], amount)
    litecoin.mine(2)
    return bill["id"], home


async def look(shop: Served, id: str, *states: str) -> dict[str, Any]:
    await shop.client.post(f"/v1/invoices/{id}/look", {})
    deadline = time.monotonic() + 30
    while (seen := (await shop.client.http.get(f"/v1/invoices/{id}")).json())["state"] not in states:
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.1)
    return dict(seen)


async def refund(shop: Served, id: str, state: str, *, held: bool = False) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        listed = (await shop.client.get(f"/v1/refunds?state={state}")).json()["refunds"]
        for one in listed:
            if one["invoice"] == id and (one["held"] is not None or not held):
                return dict(one)
        assert time.monotonic() < deadline, listed
        await asyncio.sleep(0.1)


async def test_a_small_refund_goes_by_itself_and_a_large_one_waits_with_its_reason(
    shop: Served, litecoin: Litecoin
) -> None:
    small, home = await paid_late(shop, litecoin, LTC)
    await look(shop, small, "refunded")
    sent = await refund(shop, small, "sent")
    assert (sent["amount"], sent["kept_atomic"], sent["held"]) == ("0.91", str(LTC * 9 // 100), None)
    assert 0 < int(sent["fee_atomic"]) < int(sent["kept_atomic"])
    litecoin.mine(2)
    done = await refund(shop, small, "confirmed")
    assert done["sent_txid"] == sent["sent_txid"]
    assert litecoin.call("getreceivedbyaddress", home, 2) * LTC == int(sent["amount_atomic"])
    large, home = await paid_late(shop, litecoin, 2 * LTC)
    await look(shop, large, "refund_due")
    held = await refund(shop, large, "queued", held=True)
    assert "above the cap" in held["held"]
    assert litecoin.call("getreceivedbyaddress", home, 0) == 0
    # Whoever asked for the invoice sees it too, but not the operator's caps.
    (seen,) = (await shop.client.http.get(f"/v1/invoices/{large}")).json()["refunds"]
    assert (seen["id"], seen["state"], seen["held"]) == (held["id"], "queued", None)
