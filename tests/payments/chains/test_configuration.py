"""The operator's setting is read strictly, and secrets come from files only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.chains.configuration import Source, chains_from_json, open_chains
from sandboxer.payments.chains.core_rpc import CoreRpc
from sandboxer.payments.chains.esplora import Esplora
from sandboxer.payments.chains.monero import MoneroWallet
from tests.support.payments.keys import BIP84_ZPUB, xpub

RPC = {"rpc": "http://127.0.0.1:9332", "xpub": BIP84_ZPUB}


def test_defaults_are_the_usual_depths() -> None:
    plans = chains_from_json(
        {
            "BTC": {"esplora": "https://btc.example/api", "xpub": BIP84_ZPUB},
            "LTC": {**RPC, "confirmations": 12},
            "DOGE": RPC,
            "XMR": {"wallet_rpc": "http://127.0.0.1:18083"},
        }
    )
    assert [(plan.code, plan.confirmations) for plan in plans] == [
        ("BTC", 3),
        ("LTC", 12),
        ("DOGE", 6),
        ("XMR", 10),
    ]
    assert plans[0].source is Source.ESPLORA


@pytest.mark.parametrize(
    ("code", "given", "why"),
    [
        ("ETH", RPC, "not a chain"),
        ("LTC", [], "object"),
        ("LTC", {"xpub": BIP84_ZPUB}, "exactly one"),
        ("BTC", {**RPC, "esplora": "https://x"}, "exactly one"),
        ("LTC", {"rpc": "http://x"}, "xpub"),
        ("LTC", {**RPC, "password": "secret"}, "no field 'password'"),
        ("LTC", {**RPC, "rpc": "http://u:secret@x"}, "password_file"),
        ("LTC", {**RPC, "rpc": "ftp://x"}, "http"),
        ("LTC", {**RPC, "confirmations": 0}, "between 1"),
        ("LTC", {**RPC, "confirmations": True}, "between 1"),
        ("LTC", {**RPC, "user": 7}, "text"),
        ("LTC", {**RPC, "birthday": "soon"}, "2026-01-31"),
        ("LTC", {"esplora": "https://x", "xpub": BIP84_ZPUB, "birthday": "2026-01-31"}, "needs no birthday"),
        ("XMR", {"wallet_rpc": "http://x", "account": -1}, "account"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(code: str, given: Any, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as refusal:
        chains_from_json({code: given})
    assert "secret" not in str(refusal.value)


async def test_chains_are_opened_without_asking_the_nodes(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("one\n")
    (tmp_path / "cookie").write_text("__cookie__:two")
    plans = chains_from_json(
        {
            "BTC": {"esplora": "http://127.0.0.1:1/api", "xpub": BIP84_ZPUB},
            "LTC": {**RPC, "user": "u", "password_file": str(tmp_path / "password")},
            "DOGE": {**RPC, "xpub": xpub("m/44h/3h/0h"), "cookie_file": str(tmp_path / "cookie")},
            "XMR": {"wallet_rpc": "http://127.0.0.1:1", "daemon": "http://127.0.0.1:2"},
        }
    )
    async with open_chains(plans) as chains:
        kinds = {code: type(chain) for code, chain in chains.items()}
    assert kinds == {"BTC": Esplora, "LTC": CoreRpc, "DOGE": CoreRpc, "XMR": MoneroWallet}


@pytest.mark.parametrize("field", ["password_file", "script", "network", "xpub"])
async def test_what_is_wrong_in_a_plan_is_told_when_it_is_opened(field: str) -> None:
    plans = chains_from_json({"LTC": {**RPC, field: "/nowhere"}})
    with pytest.raises(InvalidRequest):
        async with open_chains(plans):
            pass
