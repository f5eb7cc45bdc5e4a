"""A platform that is paid by x402 on a local chain."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from x402.http.clients.httpx import wrapHttpxWithPayment
from x402.http.utils import decode_payment_required_header, encode_payment_signature_header

from sandboxer.backends.contract import Backend
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.money.buckets import settle_account
from sandboxer.money.verification import verify
from sandboxer.settings import Settings
from testchains.evm import Anvil
from tests.support.http.served import Served, serving
from tests.support.payments.x402 import RATES, SIGNER_KEY, paying_client, settings_for


def settings_with(chain: Anvil, folder: Path, **more: Any) -> Settings:
    return Settings.model_validate(
        {
            "state_dir": folder / "state",
            "host": "127.0.0.1",
            "port": 0,
            "limit_auth": 10_000,
            "limit_bucket_only": 10_000,
            "x402": settings_for(chain, **more),
            "x402_signer_key": SIGNER_KEY,
            "fixed_rates": {asset: str(price) for asset, price in RATES.items()},
        }
    )


@contextlib.asynccontextmanager
async def shop(
    chain: Anvil, folder: Path, backend: Backend | None = None, **more: Any
) -> AsyncIterator[Served]:
    backends = {"ext.namespaces": backend or Scripted(name="ext.namespaces")}
    async with serving(settings_with(chain, folder, **more), backends) as served:
        yield served
        proof = await served.platform.store.read(verify)
        assert proof.is_whole


@pytest.fixture
async def served(evm: Anvil, tmp_path: Path) -> AsyncIterator[Served]:
    async with shop(evm, tmp_path) as running:
        yield running


@pytest.fixture
def wallet(evm: Anvil) -> str:
    return evm.new_wallet(5_000_000)


@contextlib.asynccontextmanager
async def agent(served: Served, wallet: str) -> AsyncIterator[httpx.AsyncClient]:
    """A client that pays what it is asked, and knows nothing of us."""
    async with wrapHttpxWithPayment(paying_client(wallet), base_url=served.url, timeout=30) as http:
        yield http


async def signed(served: Served, wallet: str, path: str, body: dict[str, Any]) -> dict[str, str]:
    """The header that such an agent would send, to be sent by hand."""
    asked = await served.client.http.post(path, json=body)
    required = decode_payment_required_header(asked.headers["payment-required"])
    payload = await paying_client(wallet).create_payment_payload(required)
    return {"payment-signature": encode_payment_signature_header(payload)}


async def credit(served: Served, account: str) -> int:
    now = served.platform.clock.now()
    return await served.platform.store.write(lambda conn: settle_account(conn, account, now=now).posted)


async def state_of(served: Served, payment_id: str, wanted: str) -> None:
    async with asyncio.timeout(40):
        while True:
            seen = (await served.client.http.get(f"/v1/payments/{payment_id}")).json()
            if seen["state"] == wanted:
                return
            await asyncio.sleep(0.05)
