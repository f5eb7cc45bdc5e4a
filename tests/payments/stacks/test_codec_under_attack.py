"""Bytes from strangers: whatever they are, they are read or refused, and never crash or cost much."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxer.identity.signatures.stacks import (
    Ascii,
    ContractPrincipal,
    Err,
    Int,
    Ok,
    Some,
    StacksAddress,
    UInt,
    Utf8,
    serialize,
)
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.stacks.clarity import MAX_DEPTH
from sandboxer.payments.stacks.transactions import (
    MAX_BYTES,
    parse_hex,
    parse_transaction,
    verify_origin,
    write_transaction,
)
from sandboxer.payments.stacks.transfers import read_transfer
from testchains.stacks.sponsoring import verify_sponsor
from tests.payments.stacks.vectors import VECTORS, deserialize, transaction

ADDRESSES = st.builds(StacksAddress, st.integers(0, 31), st.binary(min_size=20, max_size=20))
NAMES = st.from_regex(r"\A[a-z][a-z0-9-]{0,20}\Z")
LEAVES = (
    st.builds(UInt, st.integers(0, 2**128 - 1))
    | st.builds(Int, st.integers(-(2**127), 2**127 - 1))
    | st.builds(Ascii, st.text(st.characters(max_codepoint=127), max_size=30))
    | st.builds(Utf8, st.text(max_size=30))
    | st.booleans()
    | st.binary(max_size=40)
    | st.none()
    | ADDRESSES
    | st.builds(ContractPrincipal, ADDRESSES, NAMES)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Some, inner)
        | st.builds(Ok, inner)
        | st.builds(Err, inner)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(NAMES, inner, max_size=4)
    ),
    max_leaves=12,
)
RAW = [bytes.fromhex(vector["hex"]) for vector in VECTORS["transactions"] + VECTORS["refused"]]


@given(VALUES)
def test_every_value_comes_back_from_its_bytes(value: object) -> None:
    assert deserialize(serialize(value)) == value  # type: ignore[arg-type]


@given(st.binary(max_size=400))
def test_random_bytes_are_a_value_or_refused(raw: bytes) -> None:
    try:
        value = deserialize(raw)
    except InvalidRequest:
        return
    assert serialize(value) == raw


@settings(max_examples=400)
@given(st.sampled_from(RAW), st.data())
def test_a_damaged_transaction_is_refused_or_reads_as_exactly_its_bytes(
    raw: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(raw) - 1))
    kind = data.draw(st.sampled_from(["flip", "cut", "grow", "fill"]))
    damaged = bytearray(raw)
    if kind == "flip":
        damaged[at] ^= data.draw(st.integers(1, 255))
    elif kind == "cut":
        del damaged[at:]
    elif kind == "grow":
        damaged[at:at] = data.draw(st.binary(min_size=1, max_size=8))
    else:
        damaged[at : at + 4] = b"\xff" * len(damaged[at : at + 4])
    try:
        parsed = parse_transaction(bytes(damaged))
    except InvalidRequest:
        return
    assert write_transaction(parsed) == bytes(damaged)
    for read in (verify_origin, verify_sponsor, read_transfer):
        with contextlib.suppress(InvalidRequest):
            read(parsed)


@pytest.mark.parametrize("name", ["sip010-sponsored", "stx-sponsored", "sip010-sponsor-signed"])
def test_no_bit_of_a_payment_can_be_changed_unnoticed(name: str) -> None:
    raw = bytes.fromhex(transaction(name)["hex"])
    sponsor_place = range(109, 212)
    unnoticed = []
    for bit in range(len(raw) * 8):
        damaged = bytearray(raw)
        damaged[bit // 8] ^= 1 << (bit % 8)
        try:
            parsed = parse_transaction(bytes(damaged))
            (verify_sponsor if "signed" in name else verify_origin)(parsed)
        except InvalidRequest:
            continue
        unnoticed.append(bit // 8)
    # Who sponsors is not the origin's to say; once the sponsor signed, it is fixed as well.
    assert all(at in sponsor_place for at in unnoticed)
    assert not (unnoticed and "signed" in name)


def test_the_other_form_of_a_signature_is_refused() -> None:
    order = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
    parsed = parse_hex(transaction("sip010-sponsored")["hex"])
    v, r, s = (parsed.origin.signature[i:j] for i, j in ((0, 1), (1, 33), (33, 65)))
    mirrored = bytes([v[0] ^ 1]) + r + (order - int.from_bytes(s, "big")).to_bytes(32, "big")
    with pytest.raises(InvalidRequest, match="did not sign"):
        verify_origin(replace(parsed, origin=replace(parsed.origin, signature=mirrored)))


def test_deep_nesting_ends_before_the_stack_does() -> None:
    assert deserialize(b"\x0a" * MAX_DEPTH + b"\x09")
    with pytest.raises(InvalidRequest, match="nested deeper"):
        deserialize(b"\x0a" * (MAX_DEPTH + 1) + b"\x09")


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        ("0b" + "ffffffff", "do not fit"),
        ("02" + "ffffffff", "too early"),
        ("0c" + "00000002" + "0162" + "09" + "0161" + "09", "not in order"),
        ("0c" + "00000002" + "0161" + "09" + "0161" + "09", "not in order"),
        ("0d" + "00000001" + "80", "not ascii"),
        ("0e" + "00000001" + "80", "not utf-8"),
        ("05" + "20" + "00" * 20, "version 32"),
        ("0f", "type 15"),
        ("0900", "follow its end"),
    ],
)
def test_a_spelling_that_is_not_canonical_is_refused(raw: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        deserialize(bytes.fromhex(raw))


@pytest.mark.parametrize("text", ["", "0x", "zz", "abc", "00" * (MAX_BYTES + 1)])
def test_text_that_is_no_transaction_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_hex(text)
