"""Platforms on real walls for the flows of the paper, and what the shipped checks say of one."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from embit import bip32

from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.exchange import Payer
from sandboxer.sdk.flows import FLOWS, CheckResult, iterate_checks
from sandboxer.sdk.flows.suite import open_bench, run_check
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.settings import Settings
from sandboxer.wire.keys import KeyNode
from testchains.evm import Anvil
from testchains.litecoin import Litecoin
from tests.support.http.real import GUEST, IMAGES, on_real_walls, why_not
from tests.support.http.served import Served
from tests.support.http.signed import Client, Credentials
from tests.support.payments.x402 import SIGNER_KEY, settings_for
from tests.support.platforms import NONE, Up, real_platform, why_not_real

SATS = 100_000
RATES = {"BTC": "100000", "LTC": "80", "DOGE": "0.2", "XMR": "150", "USDC": "1"}
# All that a flow asks comes from one address and one account.
PATIENT = dict.fromkeys(
    (
        "SANDBOXER_LIMIT_BUCKET_ONLY",
        "SANDBOXER_LIMIT_ADDRESS",
        "SANDBOXER_LIMIT_REFUSALS",
        "SANDBOXER_LIMIT_PORT_REFUSALS",
        "SANDBOXER_LIMIT_AUTH",
    ),
    "100000",
)
# A gift card of the least value costs so much.
MOST_SATS = 10_000


@dataclass(frozen=True)
class Charging:
    """A platform that charges, and an account with sats."""

    up: Up
    key: Credentials

    @property
    def environment(self) -> dict[str, str]:
        """For a client of the account."""
        plain = {
            name: value for name, value in self.up.environment.items() if name != "SANDBOXER_CREDENTIALS"
        }
        return plain | {
            "SANDBOXER_PUBLIC_KEY": self.key.public_key,
            "SANDBOXER_SECRET_KEY": self.key.secret_key,
        }

    def client(self, url: str | None = None) -> AsyncSandboxer:
        return AsyncSandboxer(
            url=url or self.up.url, public_key=self.key.public_key, secret_key=self.key.secret_key
        )

    async def results(
        self, *flows: int, url: str | None = None, payer: Payer | None = None
    ) -> list[CheckResult]:
        """What the shipped checks of these flows say of it."""
        async with self.client(url) as client:
            found = iterate_checks(client, only=flows, most_sats=MOST_SATS, payer=payer)
            return [one async for one in found]

    async def result(self, flow: int, says: str, *, url: str | None = None) -> CheckResult:
        """What one of them says."""
        (of,) = (one for one in FLOWS if one.number == flow)
        (check,) = (one for one in of.checks if one.says == says)
        async with self.client(url) as client, open_bench(client, most_sats=MOST_SATS) as bench:
            return await run_check(of, check, bench)

    async def passes(self, flow: int, *, besides: Collection[str] = (), payer: Payer | None = None) -> None:
        """Demands that every shipped check of a flow passes but those named, which have to be not offered."""
        results = await self.results(flow, payer=payer)
        assert results
        verdicts = {one.check: (one.verdict.value, one.detail) for one in results}
        wrong = {check: said for check, said in verdicts.items() if said[0] != "passed"}
        assert wrong.keys() == set(besides), wrong
        assert {said[0] for said in wrong.values()} <= {"not_offered"}, wrong


@contextmanager
def charging_platform(state: Path, *, settings: Mapping[str, str] = NONE) -> Iterator[Charging]:
    if why := why_not_real():
        pytest.skip(why)
    chosen = {
        "SANDBOXER_CHARGING": "true",
        "SANDBOXER_FIXED_RATES": json.dumps(RATES),
        **PATIENT,
        **settings,
    }
    with real_platform(state, settings=chosen) as up:
        with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
            made = owner.keys.create("k", "agent")
            owner.operator.adjust("agent", SATS, id="first", reason="what flow 3 pays for")
        yield Charging(up, Credentials(made.public_key, made.secret_key))


@contextmanager
def selling_platform(folder: Path, evm: Anvil, chains: Mapping[str, Any]) -> Iterator[Charging]:
    """One that is paid by x402 on that chain, and in these coins."""
    settings = {
        "SANDBOXER_X402": json.dumps(settings_for(evm)),
        "SANDBOXER_X402_SIGNER_KEY": SIGNER_KEY,
        "SANDBOXER_CHAINS": json.dumps(chains),
        "SANDBOXER_INVOICES": json.dumps({"poll_s": 0.1}),
    }
    with charging_platform(folder / "state", settings=settings) as charging:
        yield charging


def settled(agent: Sandboxer, account: str) -> KeyNode:
    """An account below the agent's, once what is left of it has come back."""
    deadline = time.monotonic() + 30
    while True:
        (node,) = (one for one in agent.keys.tree().children if one.account == account)
        if node.balance == 0:
            return node
        assert time.monotonic() < deadline, node
        time.sleep(0.05)


def node_of(code: str, node: Any, folder: Path) -> dict[str, Any]:
    """How a platform finds the node of a coin, whose test chain this is."""
    password = folder / f"{code}.password"
    password.write_text(node.password)
    login = {"user": node.user, "password_file": str(password)}
    if code == "XMR":
        return {"wallet_rpc": node.wallet_url, "network": "regtest", "daemon": node.daemon_url, **login}
    seed = bip32.HDKey.from_seed(f"{folder}{code}".encode().ljust(64)[-64:])
    xpub = seed.derive("m/84h/1h/0h").to_public().to_base58()
    return {"rpc": node.url, "network": "regtest", "xpub": xpub, **login}


@pytest.fixture(scope="session")
def charging(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Charging]:
    with charging_platform(tmp_path_factory.mktemp("charging") / "state") as made:
        yield made


@pytest.fixture(scope="module")
def selling(evm: Anvil, litecoin: Litecoin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Charging]:
    folder = tmp_path_factory.mktemp("selling")
    with selling_platform(folder, evm, {"LTC": node_of("LTC", litecoin, folder)}) as made:
        yield made


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Served]:
    """On real walls with room for images, and commands that must answer."""
    if why := why_not():
        pytest.skip(why)
    settings = Settings(
        state_dir=tmp_path / "state",
        host="127.0.0.1",
        port=0,
        images_dir=IMAGES,
        guest_dir=GUEST,
        pool_size_mb=1200,
        charging=False,
    )
    async with on_real_walls(settings) as running:
        yield running


async def sh_as(client: Client, sandbox_id: str, script: str) -> str:
    answer = await client.post(f"/v1/sandboxes/{sandbox_id}/exec", {"argv": ["/bin/sh", "-c", script]})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["stdout"])
