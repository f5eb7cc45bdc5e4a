"""BIP-137 against bitcoinjs-message, BIP-322 against bip322-js, and the attacks on both."""

from __future__ import annotations

import base64
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.identity.signatures.bitcoin import bitcoin_address, verify_bitcoin
from sandboxer.kernel.errors import InvalidRequest, Refused, Unauthenticated
from tests.identity.wallets.vectors import load
from tests.support.signers import Signer, high_s

BIP137, BIP322 = load("bip137"), load("bip322")
# From the BIP's own text: key L3VFeEujGtevx9w18HD1fhRbCH67Az2dpCymeRE1SoPK6XQtaN2k.
OFFICIAL = [
    (
        "",
        "AkcwRAIgM2gBAQqvZX15ZiysmKmQpDrG83avLIT492QBzLnQIxYCIBaTpOaD20qRlEylyxFSeEA2ba9YOixpX8z46TSDtS40"
        "ASECx/EgAxlkQpQ9hYjgGu6EBCPMVPwVIVJqO4XCsMvViHI=",
    ),
    (
        "Hello World",
        "AkcwRAIgZRfIY3p7/DoVTty6YZbWS71bc5Vct9p9Fia83eRmw2QCICK/ENGfwLtptFluMGs2KsqoNSk89pO7F29zJLUx9a/s"
        "ASECx/EgAxlkQpQ9hYjgGu6EBCPMVPwVIVJqO4XCsMvViHI=",
    ),
]


@pytest.mark.parametrize("vector", BIP137 + BIP322, ids=lambda v: f"{v['network']}-{v['kind']}")
def test_what_others_signed_holds(vector: dict[str, str]) -> None:
    verify_bitcoin(vector["address"], vector["message"], vector["signature"])


@pytest.mark.parametrize(("message", "signature"), OFFICIAL)
def test_the_vectors_of_bip_322_hold(message: str, signature: str) -> None:
    address = "bc1q9vza2e8x573nczrlzms0wvx3gsqjx7vavgkx0l"
    verify_bitcoin(address, message, signature)
    verify_bitcoin(address.upper(), message, "smp" + signature)


@pytest.mark.parametrize("vector", BIP137 + BIP322, ids=lambda v: f"{v['network']}-{v['kind']}")
def test_another_message_or_a_changed_signature_is_refused(vector: dict[str, str]) -> None:
    raw = base64.b64decode(vector["signature"])
    broken = base64.b64encode(raw[:20] + bytes([raw[20] ^ 1]) + raw[21:]).decode()
    short = base64.b64encode(raw[:-1]).decode()
    for message, signature in (
        (vector["message"] + "!", vector["signature"]),
        (vector["message"], broken),
        (vector["message"], short),
    ):
        with pytest.raises(Unauthenticated) as caught:
            verify_bitcoin(vector["address"], message, signature)
        assert caught.value.facts["hint"]


def test_nobodys_signature_holds_for_somebody_elses_address() -> None:
    vectors = [v for v in BIP137 + BIP322 if v["message"] == "Hello World" and v["network"] == "bitcoin"]
    for one, other in itertools.permutations(vectors, 2):
        if one["address"] != other["address"] and not _is_same_key_loosely(one, other):
            with pytest.raises(Refused):
                verify_bitcoin(other["address"], "Hello World", one["signature"])


def _is_same_key_loosely(one: dict[str, str], other: dict[str, str]) -> bool:
    """A plain compressed BIP-137 signature is taken for the same key's segwit addresses."""
    kinds = {v["address"]: i for i, v in enumerate(BIP137)}
    same_key = kinds.get(one["address"], -1) // 16 == kinds.get(other["address"], -99) // 16
    return one in BIP137 and one["kind"] == "p2pkh" and same_key and other["kind"] != "p2pkh-uncompressed"


def test_a_signature_marked_for_one_kind_of_address_does_not_hold_for_another() -> None:
    by_kind = {v["kind"]: v for v in BIP137[:3]}
    for kind, other in itertools.permutations(["p2sh-p2wpkh", "p2wpkh", "p2pkh"], 2):
        if kind != "p2pkh":
            with pytest.raises(Unauthenticated):
                verify_bitcoin(by_kind[other]["address"], "", by_kind[kind]["signature"])


def test_the_other_s_is_refused() -> None:
    signer = Signer.named("a")
    raw = base64.b64decode(signer.sign_btc("m"))
    verify_bitcoin(signer.btc, "m", signer.sign_btc("m"))
    flipped = high_s(raw[1:] + bytes([raw[0] - 31]))
    with pytest.raises(Unauthenticated):
        verify_bitcoin(signer.btc, "m", base64.b64encode(bytes([31 + flipped[64]]) + flipped[:64]).decode())


@pytest.mark.parametrize("signature", ["", "=", "é", "A" * 5000, "AA==", "AQ==", "Ag==", "smp", "Hw=="])
def test_what_is_no_signature_is_refused(signature: str) -> None:
    for vector in (BIP137[0], BIP322[0], BIP322[2]):
        with pytest.raises(Refused):
            verify_bitcoin(vector["address"], "m", signature)


@given(st.binary(max_size=200))
def test_random_bytes_are_never_a_signature(raw: bytes) -> None:
    for vector in (BIP137[0], BIP322[0], BIP322[1], BIP322[2]):
        with pytest.raises(Refused):
            verify_bitcoin(vector["address"], "m", base64.b64encode(raw).decode())


def test_addresses_know_their_network_and_have_one_spelling() -> None:
    for vector in BIP137 + BIP322:
        parsed = bitcoin_address(vector["address"])
        wanted = {"bitcoin": "mainnet", "testnet": "testnet", "regtest": "regtest"}[vector["network"]]
        is_base58 = parsed.kind in ("p2pkh", "p2sh")
        assert parsed.network == ("testnet" if is_base58 and wanted == "regtest" else wanted)
        assert parsed.text == vector["address"]
        if not is_base58:
            assert bitcoin_address(vector["address"].upper()) == parsed


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "bc1",
        "bc1q",
        "bc1qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t5",
        "bc1Qw508d6qejxtdg4y5r3zarvary0c5xw7kv8f3t4",
        "ltc1qw508d6qejxtdg4y5r3zarvary0c5xw7kgmn4n9",
        "bc1pw508d6qejxtdg4y5r3zarvary0c5xw7kw508d6qejxtdg4y5r3zarvary0c5xw7kt5nd6y",
        "1BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN3",
        "11BvBMSEYstWetqTFn5Au4m4GFg7xJaNVN2",
        "LhK2kQwiaAvhjWY799cZvMyYwnQAcxkarr",
        "1" * 34,
        "é" * 30,
        "z" * 500,
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        bitcoin_address(text)
    assert caught.value.facts["reason"] == "bad_address"
