"""Paying by invoice from a terminal, on a real Litecoin: the QR code, the progress, the key."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from embit.bip32 import HDKey

from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.sync.client import Sandboxer
from testchains.litecoin import Litecoin
from tests.support.cli import PROGRAM, Cli
from tests.support.platforms import Up, scripted_platform


@pytest.fixture(scope="module")
def shop(litecoin: Litecoin, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    folder = tmp_path_factory.mktemp("shop")
    (folder / "password").write_text(litecoin.password)
    xpub = HDKey.from_seed(str(folder).encode().ljust(64)[-64:]).to_public().to_base58()
    chain = {
        "rpc": litecoin.url,
        "network": "regtest",
        "user": litecoin.user,
        "password_file": str(folder / "password"),
        "xpub": xpub,
    }
    more = {
        "chains": {"LTC": chain},
        "fixed_rates": {"BTC": "60000", "LTC": "80"},
        "invoices": {"poll_s": 0.1},
    }
    with scripted_platform(folder / "state", **more) as running:
        yield running


@pytest.fixture
def stranger(shop: Up, tmp_path: Path) -> Cli:
    """Who knows the address of the platform and has no key at all."""
    plain = {name: value for name, value in shop.environment.items() if name != "SANDBOXER_CREDENTIALS"}
    return Cli(plain | {"SANDBOXER_STATE_DIR": str(tmp_path / "nothing here")})


def test_a_stranger_pays_watches_and_is_given_a_key(shop: Up, stranger: Cli, litecoin: Litecoin) -> None:
    words = [*PROGRAM, "invoice", "create", "ltc", "--sats", "100000", "--watch", "--json"]
    with subprocess.Popen(words, env=stranger.environment, stdout=subprocess.PIPE, text=True) as paying:
        assert paying.stdout is not None
        bill = json.loads(paying.stdout.readline())
        litecoin.pay(bill["address"], int(bill["atomic"]))
        litecoin.mine(6)
        end = json.loads(paying.stdout.readline())
    assert paying.returncode == 0
    assert end["invoice"]["state"] == "paid"
    key = end["key"]
    with Sandboxer(url=shop.url, public_key=key["public_key"], secret_key=key["secret_key"]) as client:
        assert client.account.me().money.balance == 100_000


def test_a_bill_shows_what_to_pay_and_a_code_to_scan(stranger: Cli) -> None:
    said = stranger("invoice", "create", "LTC", "--tier", "1", "--months", "3")
    assert said.code == 0, said.err
    # $19.53 at $80.
    assert "0.244" in said.out
    assert "claim" in said.out
    assert "█" in said.out or "▀" in said.out
    id = next(word for word in said.out.split() if word.startswith("inv_"))
    assert "awaiting" in stranger("invoice", "show", id).out


def test_what_is_wrong_is_said_in_one_paragraph(stranger: Cli) -> None:
    said = stranger("invoice", "create", "LTC", "--tier", "1", "--months", "2", "--json")
    assert said.code != 0
    assert said.error["code"] == "invalid_request"
    assert stranger("invoice", "create", "XMR", "--sats", "5000", "--json").error["code"] == "not_available"


def test_lists_are_the_operators(shop: Up, stranger: Cli) -> None:
    owner = Cli(shop.environment)
    assert owner("invoice", "list", "--json").code == 0
    assert owner("refund", "list", "--state", "queued", "--json").items == []
    assert stranger("invoice", "list").code != 0


def test_rates_are_shown_to_anyone(stranger: Cli) -> None:
    said = stranger("rate", "list", "--json").items
    assert {line["asset"]: line["usd"] for line in said}["LTC"] == "80"
    assert "fixed" in stranger("rate", "list").out


def test_both_clients_follow_an_invoice_to_its_end(shop: Up, litecoin: Litecoin) -> None:
    with Sandboxer(owner_file=shop.owner_file, url=shop.url) as client:
        me = client.account.me().account.public_id
        made = client.invoices.create("LTC", sats=50_000, account=me)
        assert made.claim is None
        assert client.invoices.qr_svg(made.id).startswith(b"<svg")
        litecoin.pay(made.address, int(made.atomic))
        litecoin.mine(6)
        states = [seen.state for seen in client.invoices.follow(made.id)]
        assert states[-1] == "paid"
        assert client.invoices.look(made.id).state == "paid"
        assert client.invoices.page(state="paid").invoices[0].id == made.id
    assert asyncio.run(_seen_by_the_other(shop, made.id)) == ["paid"]


async def _seen_by_the_other(shop: Up, id: str) -> list[str]:
    async with AsyncSandboxer(owner_file=shop.owner_file, url=shop.url) as client:
        assert (await client.invoices.get(id)).is_settled
        assert await client.invoices.rates()
        return [seen.state async for seen in client.invoices.follow(id)]
