"""Our codec says what the reference library says, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxer.identity.signatures.stacks import serialize
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.stacks.clarity import (
    Cursor,
    read_post_condition,
    write_post_condition,
)
from sandboxer.payments.stacks.transactions import (
    StacksKey,
    parse_hex,
    verify_origin,
    write_transaction,
)
from sandboxer.payments.stacks.transfers import (
    MAINNET,
    PUBLISHED,
    TESTNET,
    asset_name,
    read_transfer,
    sponsored_transfer,
)
from testchains.stacks.sponsoring import sign_sponsor, verify_sponsor
from tests.payments.stacks.vectors import ORIGIN, SPONSOR, VECTORS, deserialize, named, transaction

NETWORKS = {"mainnet": MAINNET, "testnet": TESTNET}


@pytest.mark.parametrize("vector", VECTORS["addresses"], ids=named("addresses"))
def test_a_key_has_the_same_address(vector: dict[str, Any]) -> None:
    key = StacksKey.from_hex(vector["key"])
    assert key.address(mainnet=vector["network"] == "mainnet") == vector["address"]


@pytest.mark.parametrize("vector", VECTORS["clarity"], ids=named("clarity"))
def test_a_clarity_value_is_read_and_written_to_the_same_bytes(vector: dict[str, Any]) -> None:
    raw = bytes.fromhex(vector["hex"])
    assert serialize(deserialize(raw)) == raw


@pytest.mark.parametrize("vector", VECTORS["post_conditions"], ids=named("post_conditions"))
def test_a_post_condition_is_read_and_written_to_the_same_bytes(vector: dict[str, Any]) -> None:
    cursor = Cursor(bytes.fromhex(vector["hex"]))
    condition = read_post_condition(cursor)
    cursor.end()
    assert write_post_condition(condition).hex() == vector["hex"]


@pytest.mark.parametrize("vector", VECTORS["transactions"], ids=named("transactions"))
def test_a_transaction_is_read_and_written_to_the_same_bytes_with_the_same_id(vector: dict[str, Any]) -> None:
    parsed = parse_hex(vector["hex"])
    assert write_transaction(parsed).hex() == vector["hex"]
    assert parsed.txid == vector["txid"]
    assert parsed.chain_id == NETWORKS[vector["network"]].chain_id
    assert (parsed.sponsor is not None) == vector["sponsored"]


@pytest.mark.parametrize("vector", VECTORS["transactions"], ids=named("transactions"))
def test_who_signed_is_found_in_every_transaction(vector: dict[str, Any]) -> None:
    parsed = parse_hex(vector["hex"])
    verify_origin(parsed)
    assert parsed.origin_address == vector["sender"]
    assert parsed.origin.nonce == vector["nonce"]
    if "sponsor" in vector:
        verify_sponsor(parsed)
        assert parsed.sponsor is not None
        assert parsed.sponsor.address(mainnet=parsed.mainnet).text == vector["sponsor"]


@pytest.mark.parametrize("vector", VECTORS["refused"], ids=named("refused"))
def test_what_cannot_pay_is_refused_with_its_reason(vector: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        parse_hex(vector["hex"])
    assert refusal.value.facts["reason"] == vector["reason"]


@pytest.mark.parametrize("network", ["mainnet", "testnet"])
def test_our_token_payment_is_the_one_the_reference_builds(network: str) -> None:
    vector = transaction("sip010-sponsored", network)
    ours = sponsored_transfer(
        StacksKey.from_hex(ORIGIN),
        network=NETWORKS[network],
        recipient=vector["recipient"],
        amount=vector["amount"],
        nonce=vector["nonce"],
        token=asset_name(PUBLISHED[NETWORKS[network].caip2]["SBTC"]),
    )
    assert write_transaction(ours).hex() == vector["hex"]


@pytest.mark.parametrize("network", ["mainnet", "testnet"])
def test_our_stx_payment_is_the_one_the_reference_builds(network: str) -> None:
    vector = transaction("stx-sponsored", network)
    ours = sponsored_transfer(
        StacksKey.from_hex(ORIGIN),
        network=NETWORKS[network],
        recipient=vector["recipient"],
        amount=vector["amount"],
        nonce=vector["nonce"],
    )
    assert write_transaction(ours).hex() == vector["hex"]


def test_our_sponsoring_is_the_references() -> None:
    opened = parse_hex(transaction("sip010-sponsored")["hex"])
    paid = transaction("sip010-sponsor-signed")
    ours = sign_sponsor(opened, StacksKey.from_hex(SPONSOR), nonce=11, fee=400)
    assert write_transaction(ours).hex() == paid["hex"]
    assert ours.txid != opened.txid


def test_a_transfer_is_read_with_its_memo() -> None:
    vector = transaction("sip010-memo")
    transfer = read_transfer(parse_hex(vector["hex"]))
    assert (transfer.amount, transfer.sender, transfer.memo) == (1500, vector["sender"], b"invoice 7")
    assert read_transfer(parse_hex(transaction("stx-standard-memo")["hex"])).memo == b"thank you"
