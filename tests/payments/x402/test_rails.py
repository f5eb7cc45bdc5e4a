"""A network that is not what the settings say is off, with a reason, until it is."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from sandboxer.kernel.errors import InvalidRequest, Unavailable
from sandboxer.payments.lifecycle import State
from sandboxer.payments.x402.evm_schemes import read_credentials
from sandboxer.store.engine import Store
from testchains.evm import Anvil
from tests.payments.x402.lying_node import OTHER_CHAIN, LyingNode
from tests.support.payments.x402 import open_desk


def asset(chain: Anvil, **changes: str) -> dict[str, Any]:
    return {"code": "USDC", "id": chain.asset, "name": "Test Dollar", "version": "2", **changes}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"code": "BTC"}, "has 6 decimals, BTC has 8"),
        ({"name": "USD Coin"}, "EIP-712"),
        ({"version": "1"}, "EIP-712"),
        ({"id": "0x" + "77" * 20}, "no token"),
    ],
    ids=["decimals", "name", "version", "contract"],
)
async def test_a_token_that_is_another_than_configured_is_not_offered(
    evm: Anvil, sqlite_store: Store, tmp_path: Path, change: dict[str, str], why: str
) -> None:
    network = {"assets": [asset(evm, **change)]}
    async with open_desk(evm, sqlite_store, tmp_path, network=network) as use_cases:
        assert why in (use_cases.x402.ways.why_off(evm.network) or "")
        assert (await use_cases.offer()).accepts == []


async def test_a_node_of_another_chain_takes_no_payment_until_it_is_the_right_one(
    evm: Anvil, sqlite_store: Store, tmp_path: Path, wallet: str
) -> None:
    with LyingNode(evm) as node:
        async with open_desk(evm, sqlite_store, tmp_path, network={"rpc_url": node.url}) as use_cases:
            payload = await use_cases.pay(wallet)
            node.lies = OTHER_CHAIN
            await use_cases.x402.rails.check_all()
            assert use_cases.x402.ways.why_off(evm.network) == "its node is of eip155:424242"
            with pytest.raises(Unavailable, match="nothing was taken"):
                await use_cases.buy(payload)
            node.is_honest()
            await use_cases.x402.rails.check_all()
            assert use_cases.x402.ways.why_off(evm.network) is None
            assert (await use_cases.buy(payload)).state is State.CONFIRMED


async def test_a_node_that_cannot_be_reached_keeps_nobody_from_starting(
    evm: Anvil, sqlite_store: Store, tmp_path: Path
) -> None:
    async with open_desk(evm, sqlite_store, tmp_path, network={"rpc_url": "http://127.0.0.1:9"}) as use_cases:
        assert "does not answer" in (use_cases.x402.ways.why_off(evm.network) or "")


def kept(folder: Path, text: str, mode: int = 0o600) -> str:
    path = folder / "secret"
    path.write_text(text)
    path.chmod(mode)
    return str(path)


def test_a_hosted_facilitator_is_shown_a_token(tmp_path: Path) -> None:
    given = read_credentials({"bearer_file": kept(tmp_path, "abc\n")}, "https://facilitator.example")
    assert given is not None
    assert given.get_auth_headers().settle == {"Authorization": "Bearer abc"}
    assert read_credentials({}, "https://facilitator.example") is None


def test_a_hosted_facilitator_is_shown_a_signed_token_for_each_request(tmp_path: Path) -> None:
    key = Ed25519PrivateKey.generate()
    seed = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    secret = kept(tmp_path, base64.b64encode(seed + public).decode())
    given = read_credentials(
        {"cdp_key_id": "key-1", "cdp_secret_file": secret}, "https://api.example/platform/v2/x402"
    )
    assert given is not None
    token = given.get_auth_headers().settle["Authorization"].removeprefix("Bearer ")
    head, claims, signature = token.split(".")
    key.public_key().verify(_decoded(signature), f"{head}.{claims}".encode())
    assert json.loads(_decoded(head))["kid"] == "key-1"
    assert json.loads(_decoded(claims))["uris"] == ["POST api.example/platform/v2/x402/settle"]


def _decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


@pytest.mark.parametrize(
    "given",
    [{"token": "x"}, {"cdp_key_id": "k"}, {"bearer_file": "/nowhere"}],
    ids=["word", "half", "missing"],
)
def test_credentials_that_cannot_be_are_refused_in_words(given: dict[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="facilitator_auth"):
        read_credentials(given, "https://facilitator.example")


def test_a_secret_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="chmod 600"):
        read_credentials({"bearer_file": kept(tmp_path, "abc", 0o644)}, "https://facilitator.example")
