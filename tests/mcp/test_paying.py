"""An agent without an account buys a sandbox by calling a tool: the official client of MCP, and x402's own
client above it.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from eth_account import Account
from x402 import x402Client
from x402.mcp import x402MCPClient
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from mcp import Client
from sandboxer.backends.scripted import Scripted
from testchains.evm import Anvil
from tests.support.chains.evm import evm
from tests.support.http.served import Served, serving
from tests.support.http.x402 import settings_with, shop
from tests.support.mcp import ERAS, connected
from tests.support.platforms import Up

__all__ = ["evm"]


@pytest.fixture
async def served(evm: Anvil, tmp_path: Path) -> AsyncIterator[Served]:
    async with shop(evm, tmp_path) as running:
        yield running


class Called:
    """x402's client knows MCP's first names: a call is one object, and an answer has the names of JSON."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call_tool(self, params: dict[str, Any], **_: object) -> Any:
        meta = params.get("_meta")
        answer = await self._client.call_tool(params["name"], params["arguments"], meta=meta)
        return SimpleNamespace(**answer.model_dump(by_alias=True, mode="json"))


def paying(client: Client, wallet: str) -> x402MCPClient:
    payer = x402Client()
    register_exact_evm_client(payer, Account.from_key(wallet))
    # It refuses tokens that it does not know, and this chain's is of its own.
    payer.set_spend_controls(False)
    return x402MCPClient(Called(client), payer, auto_payment=True)


@pytest.mark.parametrize("era", ERAS)
async def test_a_stranger_buys_a_sandbox_and_goes_on_with_the_token_it_got(
    served: Served, evm: Anvil, era: str
) -> None:
    up = Up(served.url, Path("/nonexistent"))
    wallet = evm.new_wallet(5_000_000)
    async with connected(up, era=era) as client:
        asked = await client.call_tool("createSandbox", {"ttl": "10m"})
        assert asked.is_error
        assert asked.structured_content["accepts"][0]["network"] == evm.network
        bought = await paying(client, wallet).call_tool("createSandbox", {"ttl": "10m"})
        assert not bought.is_error, bought.content
        assert bought.payment_made
        assert bought.payment_response.success
    token, sandbox_id = said(bought)
    async with connected(up, token, era=era) as client:
        ran = await client.call_tool("runCommand", {"sandbox_id": sandbox_id, "command": "echo paid"})
        assert ran.structured_content["stdout"] == "paid\n"


def said(bought: Any) -> tuple[str, str]:
    answer = json.loads(bought.content[0]["text"])
    return answer["key"]["bearer_token"], answer["id"]


async def test_what_is_wrong_is_not_paid_for(served: Served, evm: Anvil) -> None:
    wallet = evm.new_wallet(5_000_000)
    async with connected(Up(served.url, Path("/nonexistent"))) as client:
        refused = await paying(client, wallet).call_tool("createSandbox", {"ttl": "for ever"})
    assert refused.is_error
    assert not refused.payment_made
    assert evm.balance(Account.from_key(wallet).address) == 5_000_000


async def test_a_key_that_was_paid_for_is_handed_over_though_no_token_of_it_can_be_made(
    evm: Anvil, tmp_path: Path
) -> None:
    settings = settings_with(evm, tmp_path).model_copy(update={"limit_auth": 1})
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        # Somebody else at its address used up what may be asked there in a minute.
        assert (await served.client.http.get("/v1/auth/siwx")).status_code == 200
        async with connected(Up(served.url, Path("/nonexistent"))) as client:
            wallet = evm.new_wallet(5_000_000)
            bought = await paying(client, wallet).call_tool("createSandbox", {"ttl": "10m"})
    assert not bought.is_error, bought.content
    key = json.loads(bought.content[0]["text"])["key"]
    assert key["secret_key"]
    assert "bearer_token" not in key
    assert bought.payment_response.success
