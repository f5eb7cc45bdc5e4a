"""Before what cannot be undone: the account's other factor, fresh, for this action on this resource, once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from sandboxer.edges.http.problems import status_of
from sandboxer.identity.authenticate import sign
from sandboxer.identity.keys import Caller, NewKey
from sandboxer.identity.second_proof import SecondProof, factor_needed, proof_from_headers
from sandboxer.kernel.errors import Refused, SecondProofNeeded, Unauthenticated
from tests.support.signers import Signer
from tests.support.wallets import Door

ALICE, BOB = Signer.named("alice"), Signer.named("bob")
ACTION, RESOURCE = "destroy", "sbx_1"


async def wallet_caller(door: Door, signer: Signer = ALICE) -> Caller:
    challenge = await door.identity.sessions.challenge()
    opened = await door.identity.sessions.open_session(challenge.nonce, signer.sign_evm(challenge.message))
    return opened.caller


async def demanded(
    door: Door, caller: Caller, action: str = ACTION, resource: str = RESOURCE
) -> dict[str, str]:
    with pytest.raises(SecondProofNeeded) as caught:
        await door.identity.second_proofs.require(caller, action=action, resource=resource, proof=None)
    assert status_of(caught.value) == 428
    assert "X-Sudo-Challenge" in str(caught.value.facts["hint"])
    return {name: str(value) for name, value in caught.value.facts.items()}


async def answer(
    door: Door, caller: Caller, facts: dict[str, str], by: str, proof: str, **other: str
) -> None:
    await door.identity.second_proofs.require(
        caller,
        action=other.get("action", ACTION),
        resource=other.get("resource", RESOURCE),
        proof=SecondProof(challenge=facts["challenge"], by=by, proof=proof),
    )


def by_key(key: NewKey, facts: dict[str, str]) -> str:
    return sign(key.secret_key.encode(), facts["message"].encode())


async def both(door: Door) -> tuple[Caller, Caller, NewKey]:
    """An account with a wallet and a key, seen from each."""
    wallet = await wallet_caller(door)
    key = await door.keys.create(wallet.account, "k")
    return wallet, Caller(public_key=key.public_key, account=wallet.account), key


async def test_a_wallet_session_is_confirmed_by_an_api_key_once(door: Door) -> None:
    wallet, _, key = await both(door)
    facts = await demanded(door, wallet)
    assert facts["factor"] == "api_key"
    assert RESOURCE in facts["message"]
    await answer(door, wallet, facts, key.public_key, by_key(key, facts))
    with pytest.raises(Unauthenticated) as caught:
        await answer(door, wallet, facts, key.public_key, by_key(key, facts))
    assert caught.value.facts["reason"] == "bad_nonce"


async def test_an_api_key_is_confirmed_by_the_accounts_wallet(door: Door) -> None:
    _, caller, _ = await both(door)
    facts = await demanded(door, caller)
    assert facts["factor"] == "wallet"
    await answer(door, caller, facts, ALICE.evm, ALICE.sign_evm(facts["message"]))


async def test_an_account_with_one_factor_signs_afresh_with_that_one(door: Door) -> None:
    wallet = await wallet_caller(door)
    facts = await demanded(door, wallet)
    assert facts["factor"] == "wallet"
    await answer(door, wallet, facts, ALICE.evm, ALICE.sign_evm(facts["message"]))
    key = await door.keys.create("only-keys", "k")
    caller = Caller(public_key=key.public_key, account="only-keys")
    facts = await demanded(door, caller)
    assert facts["factor"] == "api_key"
    await answer(door, caller, facts, key.public_key, by_key(key, facts))


async def test_a_lost_key_is_replaced_by_a_fresh_signature_of_the_wallet_not_by_its_session(
    door: Door,
) -> None:
    wallet, _, key = await both(door)
    proofs = door.identity.second_proofs
    with pytest.raises(SecondProofNeeded) as caught:
        await proofs.require(wallet, action="regenerate", resource="k", proof=None, factor="wallet")
    facts = {name: str(value) for name, value in caught.value.facts.items()}
    assert facts["factor"] == "wallet"
    signed = SecondProof(challenge=facts["challenge"], by=ALICE.evm, proof=ALICE.sign_evm(facts["message"]))
    await proofs.require(wallet, action="regenerate", resource="k", proof=signed, factor="wallet")
    # The factor is part of what the challenge is bound to.
    facts = await demanded(door, wallet)
    with pytest.raises(Unauthenticated):
        await proofs.require(
            wallet,
            action=ACTION,
            resource=RESOURCE,
            proof=SecondProof(challenge=facts["challenge"], by=key.public_key, proof=by_key(key, facts)),
            factor="wallet",
        )


async def test_the_factor_in_use_is_not_enough_where_there_is_another(door: Door) -> None:
    wallet, caller, key = await both(door)
    facts = await demanded(door, wallet)
    with pytest.raises(Refused):
        await answer(door, wallet, facts, ALICE.evm, ALICE.sign_evm(facts["message"]))
    facts = await demanded(door, caller)
    with pytest.raises(Refused):
        await answer(door, caller, facts, key.public_key, by_key(key, facts))


async def test_a_challenge_got_while_the_account_had_one_factor_is_no_way_around_the_second(
    door: Door,
) -> None:
    wallet = await wallet_caller(door)
    facts = await demanded(door, wallet)
    await door.keys.create(wallet.account, "k")
    with pytest.raises(Unauthenticated) as caught:
        await answer(door, wallet, facts, ALICE.evm, ALICE.sign_evm(facts["message"]))
    assert caught.value.facts["reason"] == "bad_nonce"


@pytest.mark.parametrize("other", [{"action": "unlock"}, {"resource": "sbx_2"}])
async def test_a_proof_is_good_for_its_action_and_resource_only(door: Door, other: dict[str, str]) -> None:
    wallet, _, key = await both(door)
    facts = await demanded(door, wallet)
    with pytest.raises(Unauthenticated) as caught:
        await answer(door, wallet, facts, key.public_key, by_key(key, facts), **other)
    assert caught.value.facts["reason"] == "bad_nonce"


async def test_another_accounts_factors_and_challenges_are_worth_nothing(door: Door) -> None:
    wallet, caller, key = await both(door)
    mallory = await wallet_caller(door, BOB)
    hers = await door.keys.create(mallory.account, "m")
    facts = await demanded(door, wallet)
    with pytest.raises(Unauthenticated):
        await answer(door, wallet, facts, hers.public_key, by_key(hers, facts))
    facts = await demanded(door, caller)
    with pytest.raises(Unauthenticated):
        await answer(door, caller, facts, BOB.evm, BOB.sign_evm(facts["message"]))
    facts = await demanded(door, mallory)
    with pytest.raises(Unauthenticated):
        await answer(door, wallet, facts, key.public_key, by_key(key, facts))


async def test_a_wrong_proof_costs_the_challenge(door: Door) -> None:
    wallet, _, key = await both(door)
    facts = await demanded(door, wallet)
    with pytest.raises(Unauthenticated) as caught:
        await answer(door, wallet, facts, key.public_key, "0" * 64)
    assert caught.value.facts["reason"] == "bad_signature"
    with pytest.raises(Unauthenticated) as caught:
        await answer(door, wallet, facts, key.public_key, by_key(key, facts))
    assert caught.value.facts["reason"] == "bad_nonce"


async def test_a_challenge_ends_after_five_minutes(door: Door) -> None:
    wallet, _, key = await both(door)
    facts = await demanded(door, wallet)
    door.clock.moment += timedelta(seconds=300)
    with pytest.raises(Unauthenticated):
        await answer(door, wallet, facts, key.public_key, by_key(key, facts))


async def test_revoked_factors_neither_count_nor_confirm(door: Door) -> None:
    wallet, caller, key = await both(door)
    facts = await demanded(door, wallet)
    await door.keys.revoke(key.public_key)
    with pytest.raises(Unauthenticated):
        await answer(door, wallet, facts, key.public_key, by_key(key, facts))
    other = await door.keys.create(wallet.account, "k2")
    caller = Caller(public_key=other.public_key, account=wallet.account)
    facts = await demanded(door, caller)
    await door.identity.wallets.revoke(wallet.account, wallet.public_key, actor="a")
    with pytest.raises(Unauthenticated):
        await answer(door, caller, facts, ALICE.evm, ALICE.sign_evm(facts["message"]))


@pytest.mark.parametrize("by", ["", "x", "sbx-pk-" + "0" * 26, "0x" + "0" * 40, "é"])
async def test_a_factor_that_does_not_exist_confirms_nothing(door: Door, by: str) -> None:
    wallet, caller, _ = await both(door)
    for who in (wallet, caller):
        facts = await demanded(door, who)
        with pytest.raises(Refused):
            await answer(door, who, facts, by, "0" * 64)


def test_the_other_factor_is_asked_for_where_there_is_one() -> None:
    assert factor_needed("api_key", frozenset({"api_key", "wallet"})) == "wallet"
    assert factor_needed("wallet", frozenset({"api_key", "wallet"})) == "api_key"
    assert factor_needed("wallet", frozenset({"wallet"})) == "wallet"
    assert factor_needed("api_key", frozenset({"api_key"})) == "api_key"


def test_headers_make_a_proof_only_when_all_are_there_once() -> None:
    right = [(b"x-sudo-challenge", b"c"), (b"x-sudo-by", b"b"), (b"x-sudo-otp", b"p")]
    assert proof_from_headers(right) == SecondProof(challenge="c", by="b", proof="p")
    assert proof_from_headers([(b"host", b"x")]) is None
    for at in range(3):
        with pytest.raises(Unauthenticated):
            proof_from_headers(right[:at] + right[at + 1 :])
        with pytest.raises(Unauthenticated):
            proof_from_headers([*right, right[at]])
