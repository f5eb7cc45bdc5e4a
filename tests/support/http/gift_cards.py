"""A platform that sells gift cards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.money.verification import verify
from sandboxer.settings import Settings
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client, Credentials

RATES = {"BTC": "60000", "LTC": "80"}


def shop_settings(state: Path, **more: Any) -> Settings:
    return Settings(
        **{
            "state_dir": state,
            "port": 0,
            "charging": True,
            "fixed_rates": RATES,
            "invoices": {"poll_s": 0.1},
            "limit_auth": 10_000,
            "limit_bucket_only": 10_000,
            "webhook_allow_private": True,
            **more,
        }
    )


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Served]:
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        yield served
        found = await served.platform.store.read(verify)
        assert found.is_whole, found.faults


async def ask(served: Served, path: str, **body: object) -> httpx.Response:
    """As nobody in particular."""
    return await served.client.http.post(f"/v1/gift-cards{path}", json=body)


async def free_card(served: Served, cents: int = 5000, **more: object) -> dict[str, Any]:
    body = {"cents": cents, "pay_with": "operator", "reason": "a test", **more}
    answer = await served.client.post("/v1/gift-cards", body)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def new_key(served: Served, redeemed: dict[str, Any]) -> Client:
    path = f"/v1/keys/{redeemed['public_key']}/reveal"
    answer = await served.client.http.post(path, json={"claim": redeemed["claim"]})
    assert answer.status_code == 200, answer.text
    return served.as_(Credentials(answer.json()["public_key"], answer.json()["secret_key"]))
