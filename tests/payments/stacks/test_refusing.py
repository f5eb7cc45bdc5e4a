"""Payments that look like payments and are none: each is refused with its own word, and nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import httpx
import pytest
from x402.schemas import PaymentPayload, PaymentRequirements

from sandboxer.identity.signatures.stacks import UInt, stacks_address
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.stacks.clarity import FtCondition, Mode, Nft, NftCondition, Origin, Sent, StxCondition
from sandboxer.payments.stacks.shop import stacks_shop
from sandboxer.payments.stacks.transactions import (
    ContractCall,
    StacksKey,
    Transaction,
    parse_hex,
    sign_origin,
    write_transaction,
)
from sandboxer.payments.stacks.transfers import MAINNET, asset_name
from sandboxer.payments.stacks.way import stacks_way
from testchains.stacks.simnet import USDCX
from testchains.stacks.sponsoring import sign_sponsor
from tests.support.payments.stacks import Till, network_settings

OTHER = StacksKey.from_hex("11" * 32)
Change = Callable[[Transaction], Transaction]


def condition(transaction: Transaction) -> FtCondition:
    found = transaction.post_conditions[0]
    assert isinstance(found, FtCondition)
    return found


def conditions(*changed: object) -> Change:
    return lambda tx: replace(tx, post_conditions=tuple(changed))  # type: ignore[arg-type]


def with_condition(**changes: object) -> Change:
    return lambda tx: replace(tx, post_conditions=(replace(condition(tx), **changes),))  # type: ignore[arg-type]


def with_argument(at: int, value: object) -> Change:
    def change(transaction: Transaction) -> Transaction:
        call = transaction.payload
        assert isinstance(call, ContractCall)
        arguments = (*call.arguments[:at], value, *call.arguments[at + 1 :])
        return replace(transaction, payload=replace(call, arguments=arguments))  # type: ignore[arg-type]

    return change


def with_call(**changes: object) -> Change:
    return lambda tx: replace(tx, payload=replace(tx.payload, **changes))  # type: ignore[arg-type]


SIGNED_WRONG: dict[str, tuple[Change, str]] = {
    "for the other network": (
        lambda tx: replace(tx, version=MAINNET.version, chain_id=MAINNET.chain_id),
        "invalid_network",
    ),
    "for another chain id": (lambda tx: replace(tx, chain_id=77), "invalid_network"),
    "to another": (with_argument(2, stacks_address(OTHER.address(mainnet=False))), "recipient_mismatch"),
    "less": (with_argument(0, UInt(999)), "amount_insufficient"),
    "another's tokens": (with_argument(1, stacks_address(OTHER.address(mainnet=False))), "sender_mismatch"),
    "of another contract": (with_call(contract=asset_name(USDCX).contract), "unrecognized_asset"),
    "by another function": (with_call(function="mint"), "invalid_transaction_state"),
    "not to be sponsored": (lambda tx: replace(tx, sponsor=None), "invalid_transaction_state"),
    "in allow mode": (lambda tx: replace(tx, mode=Mode.ALLOW), "invalid_transaction_state"),
    "in originator mode": (lambda tx: replace(tx, mode=Mode.ORIGINATOR), "invalid_transaction_state"),
    "without post-condition": (conditions(), "invalid_transaction_state"),
    "with a condition on stx": (
        conditions(StxCondition(Origin(), Sent.EQUAL, 1_000)),
        "invalid_transaction_state",
    ),
    "with a condition on an nft": (
        conditions(NftCondition(Origin(), asset_name(USDCX), UInt(1), Nft.SENDS)),
        "invalid_transaction_state",
    ),
    "with one condition too many": (
        lambda tx: replace(tx, post_conditions=tx.post_conditions * 2),
        "invalid_transaction_state",
    ),
    "with at most instead of equal": (with_condition(code=Sent.LESS_EQUAL), "invalid_transaction_state"),
    "with another amount": (with_condition(amount=999), "invalid_transaction_state"),
    "with a condition on another token": (
        with_condition(asset=asset_name(USDCX)),
        "invalid_transaction_state",
    ),
    "with a condition on another": (
        with_condition(principal=stacks_address(OTHER.address(mainnet=False))),
        "invalid_transaction_state",
    ),
    "sponsored already": (
        lambda tx: sign_sponsor(tx, OTHER, nonce=0, fee=400),
        "invalid_transaction_state",
    ),
}


def again(payload: PaymentPayload, transaction: Transaction) -> PaymentPayload:
    return payload.model_copy(update={"payload": {"transaction": write_transaction(transaction).hex()}})


@pytest.mark.parametrize("what", SIGNED_WRONG)
async def test_a_payment_signed_wrong_is_refused_with_its_own_word(till: Till, what: str) -> None:
    change, reason = SIGNED_WRONG[what]
    asked = till.ask(1_000)
    payload = till.sign(asked)
    changed = change(parse_hex(payload.payload["transaction"]))
    if what != "sponsored already":
        changed = sign_origin(changed, till.payer.key)
    refused = await till.way.facilitator.settle(again(payload, changed), asked)
    assert not refused.success
    assert (refused.error_reason, refused.transaction) == (reason, "")
    till.chain.mine()
    assert till.received() == 0


async def test_what_the_payer_did_not_sign_is_refused(till: Till) -> None:
    asked = till.ask(1_000)
    payload = till.sign(asked)
    changed = with_argument(0, UInt(5_000))(parse_hex(payload.payload["transaction"]))
    verdict = await till.way.facilitator.verify(again(payload, changed), asked)
    assert (verdict.is_valid, verdict.invalid_reason) == (False, "signature_validation_failed")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"amount": "1e3"}, "invalid_payment_requirements"),
        ({"amount": "0"}, "invalid_payment_requirements"),
        ({"pay_to": OTHER.address(mainnet=False)}, "invalid_payment_requirements"),
        ({"asset": "ST1.other"}, "unrecognized_asset"),
        ({"network": "stacks:1"}, "invalid_network"),
        ({"scheme": "upto"}, "unsupported_scheme"),
    ],
)
async def test_requirements_that_are_not_ours_are_refused(
    till: Till, changes: dict[str, str], reason: str
) -> None:
    payload = till.sign(till.ask(1_000))
    asked = till.ask(1_000).model_copy(update=changes)
    verdict = await till.way.facilitator.verify(payload, asked)
    assert (verdict.is_valid, verdict.invalid_reason) == (False, reason)


async def test_a_memo_that_was_asked_for_is_checked(till: Till) -> None:
    asked = till.ask(1_000)
    with_memo = asked.model_copy(update={"extra": {**asked.extra, "memo": "order 7"}})
    assert (await till.way.facilitator.verify(till.sign(with_memo), with_memo)).is_valid
    verdict = await till.way.facilitator.verify(till.sign(asked), with_memo)
    assert (verdict.is_valid, verdict.invalid_reason) == (False, "invalid_payload")


async def test_installations_that_share_an_address_are_told_apart_by_their_memos(till: Till) -> None:
    entry = till.chain.settings(till.owner.address)
    async with httpx.AsyncClient(trust_env=False) as http:
        ours, theirs = (
            stacks_way(network_settings({**entry, "options": {"memo": memo}}).networks[0], http)
            for memo in ("ours", "theirs")
        )
        asked = [
            till.ask(1_000).model_copy(update={"extra": {**till.ask(1_000).extra, **way.extra}})
            for way in (ours, theirs)
        ]
        paid = till.sign(asked[0])
        assert (await ours.facilitator.verify(paid, asked[0])).is_valid
        again = paid.model_copy(update={"accepted": asked[1]})
        assert not (await theirs.facilitator.verify(again, asked[1])).is_valid
    with pytest.raises(InvalidRequest, match="memo"):
        stacks_shop(network_settings({**entry, "options": {"memo": "x" * 35}}).networks[0])


@pytest.mark.parametrize("transaction", [None, 7, "", "zz", "00", "80" * 500])
async def test_what_is_no_transaction_is_refused(till: Till, transaction: object) -> None:
    asked = till.ask(1_000)
    payload = PaymentPayload(payload={"transaction": transaction}, accepted=asked)
    verdict = await till.way.facilitator.verify(payload, asked)
    assert (verdict.is_valid, verdict.invalid_reason) == (False, "invalid_payload")


async def test_the_same_payment_moves_once_however_often_it_is_settled(till: Till) -> None:
    asked = till.ask(1_000)
    payload = till.sign(asked)
    first = await till.way.facilitator.settle(payload, asked)
    second = await till.way.facilitator.settle(payload, asked)
    assert first.success
    assert second.transaction == first.transaction
    till.chain.mine()
    till.chain.relay.faults.arm("forget")
    third = await till.way.facilitator.settle(payload, asked)
    assert (third.success, third.error_reason) == (False, "client_bad_nonce")
    till.chain.mine()
    assert till.received() == 1_000


def test_the_client_does_not_sign_for_a_token_of_another_contract(till: Till) -> None:
    asked: PaymentRequirements = till.ask(1_000)
    lying = asked.model_copy(update={"extra": {**asked.extra, "assetName": USDCX}})
    with pytest.raises(Exception, match="not a token of the asset's contract"):
        till.sign(lying)
