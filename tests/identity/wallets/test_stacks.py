"""c32, Clarity and SIP-018 against @stacks/transactions, @stacks/encryption and the SIP's own vectors."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.identity.signatures.stacks import (
    Ascii,
    Int,
    Sip018Domain,
    UInt,
    Utf8,
    Value,
    encode,
    serialize,
    sip018_digest,
    stacks_address,
    stacks_message_digest,
    verify_sip018,
    verify_stacks_message,
)
from sandboxer.kernel.errors import InvalidRequest, Refused, Unauthenticated
from tests.identity.wallets.vectors import load
from tests.support.signers import Signer, high_s

VECTORS = load("stacks")
SIP018, PLAIN = VECTORS["sip018"], VECTORS["plain"]
names = st.text(st.sampled_from("abcxyz-019"), min_size=1, max_size=20)
values: st.SearchStrategy[Value] = st.recursive(
    st.one_of(
        st.booleans(),
        st.none(),
        st.binary(max_size=40),
        st.integers(0, 2**128 - 1).map(UInt),
        st.integers(-(2**127), 2**127 - 1).map(Int),
        st.text(st.characters(max_codepoint=127), max_size=40).map(Ascii),
        st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map(Utf8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(tuple), st.dictionaries(names, inner, max_size=4)
    ),
    max_leaves=10,
)


def read(raw: bytes) -> tuple[Any, bytes]:
    """A decoder, for the test only: what was encoded can be told apart again."""
    kind, rest = raw[0], raw[1:]
    if kind in (0, 1):
        number = int.from_bytes(rest[:16], "big", signed=kind == 0)
        return (Int if kind == 0 else UInt)(number), rest[16:]
    if kind in (3, 4, 9):
        return {3: True, 4: False, 9: None}[kind], rest
    count, rest = int.from_bytes(rest[:4], "big"), rest[4:]
    if kind in (2, 13, 14):
        piece = rest[:count]
        made = {2: bytes, 13: lambda b: Ascii(b.decode("ascii")), 14: lambda b: Utf8(b.decode())}[kind]
        return made(piece), rest[count:]
    items: list[Any] = []
    found: dict[str, Any] = {}
    for _ in range(count):
        name = ""
        if kind == 12:
            name, rest = rest[1 : 1 + rest[0]].decode(), rest[1 + rest[0] :]
        value, rest = read(rest)
        items.append(value)
        found[name] = value
    return (found if kind == 12 else tuple(items)), rest


def value_of(kind: str, value: Any) -> Value:
    makers: dict[str, Any] = {
        "uint": lambda v: UInt(int(v)),
        "int": lambda v: Int(int(v)),
        "ascii": Ascii,
        "utf8": Utf8,
        "buffer": bytes.fromhex,
        "bool": bool,
        "none": lambda _: None,
        "principal": stacks_address,
        "tuple": lambda v: {name: UInt(number) for name, number in v.items()},
        "list": lambda v: tuple(UInt(number) for number in v),
    }
    return makers[kind](value)  # type: ignore[no-any-return]


@pytest.mark.parametrize("vector", VECTORS["values"], ids=lambda v: v["kind"])
def test_values_are_the_bytes_that_stacks_makes(vector: dict[str, Any]) -> None:
    assert serialize(value_of(vector["kind"], vector["value"])).hex() == vector["hex"]


@given(values)
def test_no_two_values_share_their_bytes(value: Value) -> None:
    assert read(serialize(value)) == (value, b"")


@pytest.mark.parametrize(
    "value", [UInt(-1), UInt(2**128), Int(2**127), Ascii("é"), {"": None}, {"é": None}, 1]
)
def test_what_clarity_cannot_say_is_refused(value: Any) -> None:
    with pytest.raises(InvalidRequest):
        serialize(value)


@pytest.mark.parametrize("vector", VECTORS["c32"])
def test_addresses_are_those_of_c32check(vector: dict[str, Any]) -> None:
    assert encode(vector["version"], bytes.fromhex(vector["hash"])) == vector["address"]
    parsed = stacks_address(vector["address"])
    assert (parsed.version, parsed.hash160.hex()) == (vector["version"], vector["hash"])


@given(st.sampled_from([20, 21, 22, 26]), st.binary(min_size=20, max_size=20))
def test_an_address_reads_back(version: int, hash160: bytes) -> None:
    text = encode(version, hash160)
    parsed = stacks_address(text)
    assert (parsed.version, parsed.hash160) == (version, hash160)
    for wrong in (text.lower(), text + "0", text[:2] + "0" + text[2:], text[:-1], text[0] + "7" + text[2:]):
        with pytest.raises(InvalidRequest):
            stacks_address(wrong)


def test_the_vector_of_sip_018_holds() -> None:
    digest = sip018_digest(Sip018Domain(name="Test App", version="1.0.0"), Ascii("Hello World"))
    assert digest.hex() == "1bfdab6d4158313ce34073fbb8d6b0fc32c154d439def12247a0f44bb2225259"


@pytest.mark.parametrize("vector", SIP018)
def test_what_stacks_signed_holds_in_every_order(vector: dict[str, Any]) -> None:
    domain, message = Sip018Domain(**vector["domain"]), Ascii(vector["ascii"])
    assert sip018_digest(domain, message).hex() == vector["hash"]
    raw = bytes.fromhex(vector["signature"])
    rs, v = raw[:64], raw[64]
    for form in (raw, rs + bytes([v + 27]), bytes([v]) + rs, bytes([v + 27]) + rs, rs):
        verify_sip018(vector["address"], domain, message, form.hex())
        verify_sip018(vector["address"], domain, message, "0x" + form.hex())


@pytest.mark.parametrize("vector", PLAIN)
def test_plain_messages_hold(vector: dict[str, Any]) -> None:
    assert stacks_message_digest(vector["message"]).hex() == vector["hash"]
    verify_stacks_message(vector["address"], vector["message"], vector["signature"])
    with pytest.raises(Unauthenticated):
        verify_stacks_message(vector["address"], vector["message"] + " ", vector["signature"])


def test_another_message_domain_address_or_network_is_refused() -> None:
    one, domain = SIP018[0], Sip018Domain(**SIP018[0]["domain"])
    other = next(v for v in SIP018 if v["network"] == "mainnet" and v["address"] != one["address"])
    testnet = next(v for v in SIP018 if v["network"] == "testnet")
    for address, used, text in (
        (one["address"], domain, "Hello world"),
        (other["address"], domain, one["ascii"]),
        (one["address"], Sip018Domain(name="Test App", version="1.0.1"), one["ascii"]),
        # The same key, on the other network, or for the other network's domain.
        (testnet["address"], domain, one["ascii"]),
        (one["address"], Sip018Domain(**testnet["domain"]), one["ascii"]),
    ):
        with pytest.raises(Unauthenticated):
            verify_sip018(address, used, Ascii(text), one["signature"])


def test_a_signature_for_the_other_network_is_worth_nothing_here() -> None:
    testnet = next(v for v in SIP018 if v["network"] == "testnet")
    with pytest.raises(Unauthenticated):
        verify_sip018(
            testnet["address"],
            Sip018Domain(name="Test App", version="1.0.0", chain_id=1),
            Ascii(testnet["ascii"]),
            testnet["signature"],
        )


def test_structured_data_is_no_plain_message_and_the_reverse() -> None:
    signer, domain = Signer.named("a"), Sip018Domain(name="x", version="1")
    with pytest.raises(Unauthenticated):
        verify_stacks_message(signer.stx, "m", signer.sign_sip018(domain, Ascii("m")))
    with pytest.raises(Unauthenticated):
        verify_sip018(signer.stx, domain, Ascii("m"), signer.sign_stx("m"))


def test_the_other_s_is_refused() -> None:
    signer = Signer.named("a")
    raw = bytes.fromhex(signer.sign_stx("m"))
    verify_stacks_message(signer.stx, "m", raw.hex())
    flipped = high_s(raw)
    for form in (flipped, flipped[:64]):
        with pytest.raises(Unauthenticated):
            verify_stacks_message(signer.stx, "m", form.hex())


@pytest.mark.parametrize(
    "signature", ["", "0x", "00" * 63, "00" * 64, "00" * 65, "ff" * 65, "zz" * 65, "é" * 130]
)
def test_what_is_no_signature_is_refused(signature: str) -> None:
    with pytest.raises(Refused):
        verify_stacks_message(Signer.named("a").stx, "m", signature)


def test_addresses_of_several_signers_cannot_sign() -> None:
    signer = Signer.named("a")
    several = encode(20, stacks_address(signer.stx).hash160)
    with pytest.raises(InvalidRequest):
        verify_stacks_message(several, "m", signer.sign_stx("m"))
