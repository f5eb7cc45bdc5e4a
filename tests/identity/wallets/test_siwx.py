"""Sign-in-with-X: the form of EIP-4361, strictly read, and one try per nonce."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import func, select

from sandboxer.identity.signatures.wallets import checksummed
from sandboxer.identity.siwx import SiwxMessage, from_header, parse
from sandboxer.identity.tables import challenges
from sandboxer.kernel.errors import Refused, Unauthenticated
from tests.support.signers import Signer
from tests.support.wallets import Door

ALICE, BOB = Signer.named("alice"), Signer.named("bob")
# The example of EIP-4361.
EXAMPLE = """example.com wants you to sign in with your Ethereum account:
0xC02aaA39b223FE8D0A0e5C4F27eAD9083C756Cc2

I accept the ExampleOrg Terms of Service: https://example.com/tos

URI: https://example.com/login
Version: 1
Chain ID: 1
Nonce: 32891756
Issued At: 2021-09-30T16:25:24Z
Resources:
- ipfs://bafybeiemxf5abjwjbikoz4mc3a3dla6ual3jsgpdr4cjr3oz3evfyavhwq/
- https://example.com/my-web2-claim.json"""
line = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=30)
messages = st.builds(
    SiwxMessage,
    domain=line,
    address=line,
    uri=line,
    namespace=st.sampled_from(["eip155", "stacks", "bip122"]),
    chain_id=line,
    nonce=line,
    issued_at=line,
    expiration_time=st.none() | line,
    not_before=st.none() | line,
    request_id=st.none() | line,
    statement=st.none() | line,
    resources=st.lists(line, max_size=3).map(tuple),
)


def test_the_example_of_the_standard_reads_and_writes_back() -> None:
    message = parse(EXAMPLE)
    assert message.statement == "I accept the ExampleOrg Terms of Service: https://example.com/tos"
    assert len(message.resources) == 2
    assert message.text() == EXAMPLE


@given(messages)
def test_every_message_reads_back(message: SiwxMessage) -> None:
    assert parse(message.text()) == message


@given(st.text(max_size=200))
def test_other_texts_are_refused_and_never_break_anything(text: str) -> None:
    with pytest.raises(Unauthenticated):
        parse(text)


@pytest.mark.parametrize(
    "change",
    [
        ("\nVersion: 1", ""),
        ("Version: 1", "Version: 1\nVersion: 1"),
        ("Nonce: ", "nonce: "),
        ("\n", "\r\n"),
        ("Chain ID: 1\nNonce: 32891756", "Nonce: 32891756\nChain ID: 1"),
        ("Resources:\n- ", "Resources:\n* "),
        ("\n\nURI", "\nURI"),
        ("Version: 1", "Version: 1\nMore: x"),
        ("Ethereum", "Solana"),
        ("example.com wants", "example.com  wants"),
    ],
)
def test_a_text_in_another_form_is_refused(change: tuple[str, str]) -> None:
    with pytest.raises(Unauthenticated):
        parse(EXAMPLE.replace(*change))


async def offered(door: Door, signer: Signer = ALICE, **changes: Any) -> SiwxMessage:
    info: dict[str, Any] = door.identity.siwx.offer(("https://sandboxer.example/v1/sandboxes",))
    message = SiwxMessage(
        domain=info["domain"],
        address=checksummed(signer.evm),
        uri=info["uri"],
        chain_id="8453",
        nonce=info["nonce"],
        issued_at=info["issuedAt"],
        expiration_time=info["expirationTime"],
        statement=info["statement"],
        resources=tuple(info["resources"]),
    )
    return replace(message, **changes)


def header(message: SiwxMessage, signature: str, /, **changes: object) -> str:
    said = {
        "domain": message.domain,
        "address": message.address,
        "statement": message.statement,
        "uri": message.uri,
        "version": message.version,
        "chainId": f"{message.namespace}:{message.chain_id}",
        "type": "eip191",
        "nonce": message.nonce,
        "issuedAt": message.issued_at,
        "expirationTime": message.expiration_time,
        "resources": list(message.resources),
        "signature": signature,
        **changes,
    }
    return base64.b64encode(json.dumps(said).encode()).decode()


async def test_an_evm_wallet_signs_in_by_text_by_header_and_for_one_request(door: Door) -> None:
    siwx, sessions = door.identity.siwx, door.identity.sessions
    message = await offered(door)
    opened = await siwx.sign_in(message.text(), ALICE.sign_evm(message.text()))
    assert (await sessions.authenticate(opened.token)).account == opened.account
    message = await offered(door)
    again = await siwx.sign_in_by_header(header(message, ALICE.sign_evm(message.text())))
    message = await offered(door)
    caller = await siwx.identify(header(message, ALICE.sign_evm(message.text())))
    assert caller == opened.caller == again.caller


async def test_stacks_and_bitcoin_wallets_sign_in_with_the_same_fields(door: Door) -> None:
    for namespace, chain, address, sign in (
        ("stacks", "1", ALICE.stx, ALICE.sign_stx),
        ("bip122", "000000000019d6689c085ae165831e93", ALICE.btc, ALICE.sign_btc),
    ):
        message = await offered(door, namespace=namespace, chain_id=chain, address=address)
        opened = await door.identity.siwx.sign_in(message.text(), sign(message.text()))
        assert opened.address == f"{namespace}:{chain}:{address}"


async def test_a_message_works_once(door: Door) -> None:
    message = await offered(door)
    value = header(message, ALICE.sign_evm(message.text()))
    await door.identity.siwx.identify(value)
    for act in (door.identity.siwx.identify, door.identity.siwx.sign_in_by_header):
        with pytest.raises(Unauthenticated) as caught:
            await act(value)
        assert caught.value.facts["reason"] == "bad_nonce"


async def test_telling_strangers_how_to_sign_in_stores_nothing(door: Door) -> None:
    count = select(func.count()).select_from(challenges)
    for _ in range(5):
        door.identity.siwx.offer()
        await door.identity.sessions.challenge()
    assert await door.store.read(lambda conn: conn.execute(count).scalar()) == 0


async def test_a_nonce_that_nobody_stored_ends_and_cannot_be_made_up(door: Door) -> None:
    message = await offered(door)
    longer = replace(message, nonce=f"{int(message.nonce[:16], 16) + 60:016x}" + message.nonce[16:])
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.siwx.sign_in(longer.text(), ALICE.sign_evm(longer.text()))
    assert caught.value.facts["reason"] == "bad_nonce"
    door.clock.moment += timedelta(seconds=301)
    with pytest.raises(Unauthenticated):
        await door.identity.siwx.sign_in(message.text(), ALICE.sign_evm(message.text()))


async def test_a_wrong_signature_costs_the_nonce(door: Door) -> None:
    message = await offered(door)
    with pytest.raises(Unauthenticated):
        await door.identity.siwx.sign_in(message.text(), BOB.sign_evm(message.text()))
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.siwx.sign_in(message.text(), ALICE.sign_evm(message.text()))
    assert caught.value.facts["reason"] == "bad_nonce"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"domain": "evil.example"}, "other_domain"),
        ({"uri": "https://evil.example/"}, "other_domain"),
        ({"uri": "https://sandboxer.example@evil.example/"}, "other_domain"),
        ({"version": "2"}, "malformed_message"),
        ({"nonce": "0" * 64}, "bad_nonce"),
        ({"expiration_time": None}, "malformed_message"),
        ({"expiration_time": "2026-11-15T11:59:59Z"}, "expired_message"),
        ({"expiration_time": "2027-11-15T12:00:00Z"}, "expired_message"),
        ({"issued_at": "2026-11-15T13:00:00Z"}, "expired_message"),
        ({"issued_at": "yesterday"}, "malformed_message"),
        ({"issued_at": "2026-13-45T12:00:00Z"}, "malformed_message"),
        ({"not_before": "2026-11-15T12:04:00Z"}, "expired_message"),
        ({"address": ALICE.evm}, "malformed_message"),
        ({"address": ALICE.stx}, "bad_address"),
        ({"chain_id": ""}, "malformed_message"),
        ({"namespace": "stacks", "address": ALICE.stx, "chain_id": "2147483648"}, "bad_address"),
    ],
)
async def test_an_honestly_signed_message_with_other_fields_is_refused(
    door: Door, changes: dict[str, Any], reason: str
) -> None:
    message = await offered(door, **changes)
    sign = ALICE.sign_stx if message.namespace == "stacks" else ALICE.sign_evm
    with pytest.raises(Refused) as caught:
        await door.identity.siwx.sign_in(message.text(), sign(message.text()))
    assert caught.value.facts["reason"] == reason


async def test_a_message_is_not_good_for_longer_than_its_nonce(door: Door) -> None:
    message = await offered(door)
    door.clock.moment += timedelta(seconds=301)
    with pytest.raises(Unauthenticated):
        await door.identity.siwx.sign_in(message.text(), ALICE.sign_evm(message.text()))


async def test_the_signature_of_a_plain_challenge_signs_nobody_in_here(door: Door) -> None:
    challenge = await door.identity.sessions.challenge()
    message = await offered(door, nonce=challenge.nonce)
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.siwx.sign_in(message.text(), ALICE.sign_evm(challenge.message))
    assert caught.value.facts["reason"] == "bad_nonce"


async def test_a_field_cannot_smuggle_in_another_line(door: Door) -> None:
    message = await offered(door)
    for changes in (
        {"statement": "x\n\nURI: https://evil.example"},
        {"address": ALICE.evm + "\n\nx"},
        {"resources": ["a\n- b"]},
        {"nonce": message.nonce + "\nIssued At: 2026-11-15T12:00:00Z"},
        {"chainId": "solana:1"},
        {"chainId": 1},
        {"resources": "abc"},
        {"signature": None},
    ):
        value = header(message, ALICE.sign_evm(message.text()), **changes)
        with pytest.raises(Unauthenticated):
            from_header(value)


@pytest.mark.parametrize(
    "value", ["", "{}", "e30=", "W10=", "bnVsbA==", "é", "A" * 100_000, "====", "W1tb" * 9000]
)
async def test_a_header_that_is_none_is_refused(door: Door, value: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        await door.identity.siwx.identify(value)
    assert caught.value.facts["reason"] == "malformed_message"
