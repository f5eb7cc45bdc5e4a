"""EIP-191 against signatures by ethers and eth-account."""

from __future__ import annotations

import pytest
from eth_account import Account
from eth_account.messages import encode_defunct
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.identity.signatures.wallets import checksummed, evm_address, recover_evm, verify_evm
from sandboxer.kernel.errors import InvalidRequest, Unauthenticated
from tests.identity.wallets.vectors import load
from tests.support.signers import Signer, high_s

VECTORS = load("eip191")


@pytest.mark.parametrize("vector", VECTORS)
def test_what_ethers_signed_holds(vector: dict[str, str]) -> None:
    verify_evm(vector["address"], vector["message"], vector["signature"])
    assert recover_evm(vector["message"], vector["signature"]) == vector["address"].lower()
    assert checksummed(vector["address"].lower()) == vector["address"]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.binary(min_size=31, max_size=31))
def test_any_text_signed_by_eth_account_holds(message: str, key: bytes) -> None:
    account = Account.from_key(b"\x01" + key)
    signed = account.sign_message(encode_defunct(text=message))
    assert recover_evm(message, signed.signature.hex()) == account.address.lower()


@pytest.mark.parametrize("v", [0, 1, 27, 28])
def test_every_way_to_write_v_is_understood(v: int) -> None:
    for vector in VECTORS:
        raw = bytes.fromhex(vector["signature"][2:])
        if raw[64] in (27 + v % 27, v):
            verify_evm(vector["address"], vector["message"], (raw[:64] + bytes([v])).hex())


@pytest.mark.parametrize("vector", VECTORS)
def test_another_message_address_or_signature_is_refused(vector: dict[str, str]) -> None:
    address, message, signature = vector["address"], vector["message"], vector["signature"]
    for wrong in (
        (address, message + " ", signature),
        (Signer.named("other").evm, message, signature),
        (address, message, signature[:-4] + "00" + signature[-2:]),
    ):
        with pytest.raises(Unauthenticated) as caught:
            verify_evm(*wrong)
        assert caught.value.facts["reason"] == "bad_signature"
        assert caught.value.facts["hint"]


def test_the_other_s_is_refused() -> None:
    signer = Signer.named("a")
    raw = bytes.fromhex(signer.sign_evm("m")[2:])
    raw = raw[:64] + bytes([raw[64] - 27])
    verify_evm(signer.evm, "m", raw.hex())
    with pytest.raises(Unauthenticated):
        verify_evm(signer.evm, "m", high_s(raw).hex())


@pytest.mark.parametrize(
    "signature",
    ["", "0x", "00" * 64, "00" * 66, "zz" * 65, "00" * 64 + "02", "00" * 64 + "1d", "00" * 65, "é" * 130],
)
def test_what_is_no_signature_is_refused(signature: str) -> None:
    with pytest.raises(Unauthenticated):
        verify_evm(Signer.named("a").evm, "m", signature)


def test_an_address_has_one_spelling_and_its_checksum_counts() -> None:
    right = VECTORS[0]["address"]
    assert evm_address(right) == evm_address(right.lower()) == evm_address("0x" + right[2:].upper())
    swapped = "0x" + right[2:].swapcase()
    for wrong in (swapped, right[:-1], right + "0", "0X" + right[2:], right + "\n", ""):
        with pytest.raises(InvalidRequest):
            evm_address(wrong)
