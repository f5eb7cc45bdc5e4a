"""An agent's wallet from the command line, paying on a real chain."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from testchains.bitcoin.chain import Bitcoin
from tests.support.cli import Cli

SHOP = "bcrt1qqhpqgygu0n40ttxcvd8ky7qjm4jkwhshm86gsl"


@pytest.fixture
def cli() -> Cli:
    """No platform: the wallet is the agent's own."""
    return Cli({"PATH": os.environ["PATH"], "LANG": "C.UTF-8"})


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "password").write_text("long enough\n")
    return ("--file", str(tmp_path / "agent.wallet"), "--password-file", str(tmp_path / "password"))


def test_a_wallet_is_made_capped_funded_and_pays(
    cli: Cli, bitcoin: Bitcoin, options: tuple[str, ...]
) -> None:
    made = cli("wallet", "create", "--json", *options)
    assert made.code == 0, made.err
    assert made.json["caps"] == {}
    node = ("--esplora", bitcoin.esplora_url, "--network", "regtest", *options)
    address = cli("wallet", "address", "BTC", "--network", "regtest", *options).out.strip()
    bitcoin.pay(address, 10**8)
    bitcoin.mine(1)
    assert cli("wallet", "balance", "BTC", "--json", *node).json == {"coin": "BTC", "balance": "1"}

    refused = cli("wallet", "send", "BTC", SHOP, "0.25", "--json", *node)
    assert (refused.code, refused.error["code"]) == (4, "forbidden")
    assert cli("wallet", "cap", "BTC", "--per-payment", "0.3", "--per-day", "0.4", *options).code == 0
    sent = cli("wallet", "send", "BTC", SHOP, "0.25", "--json", *node)
    assert sent.code == 0, sent.err
    assert sent.json["txid"] in bitcoin.mempool
    assert cli("wallet", "send", "BTC", SHOP, "0.25", *node).code == 4
    bitcoin.mine(1)
    spent = cli("wallet", "show", "--json", *options).json["caps"]["BTC"]["spent"]
    assert spent.startswith("0.2500")


def test_a_seed_comes_back_from_its_words(cli: Cli, options: tuple[str, ...], tmp_path: Path) -> None:
    cli("wallet", "create", *options)
    words = cli("wallet", "show", "--words", *options).out
    (tmp_path / "words").write_text(words)
    other = (*options[:1], str(tmp_path / "other"), *options[2:])
    again = cli("wallet", "create", "--json", "--words-file", str(tmp_path / "words"), *other)
    assert again.json == cli("wallet", "show", "--json", *options).json
    assert words.split()[0] not in again.out


def test_slips_are_told_with_what_to_do(cli: Cli, options: tuple[str, ...]) -> None:
    assert cli("wallet", "create", *options[:2]).code != 0  # nobody there to type a password
    cli("wallet", "create", *options)
    for words in (("balance", "BTC"), ("balance", "ETH"), ("address", "ETH")):
        said = cli("wallet", *words, *options)
        assert said.code != 0
        assert "Traceback" not in said.err
