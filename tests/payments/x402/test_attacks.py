"""What a payer, or somebody who overheard one, may try. Nothing moves, or it moves once."""

from __future__ import annotations

import base64
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from eth_account import Account
from sqlalchemy import Connection, select
from x402.mechanisms.evm.exact.client import ExactEvmScheme
from x402.mechanisms.evm.signers import EthAccountSigner
from x402.schemas import PaymentPayload, PaymentRequirements

from sandboxer.accounts import records as accounts
from sandboxer.identity.signatures.wallets import wallet_of
from sandboxer.kernel.errors import Conflict, InvalidRequest, PaymentRefused, SandboxerError
from sandboxer.money.buckets import open_bucket, settle_account
from sandboxer.money.tables import ledger_transfers
from sandboxer.payments import credits, records
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Purpose
from sandboxer.store.engine import open_store
from testchains.evm import KEYS, Anvil
from testchains.evm.anvil import address_of
from tests.support.payments.x402 import Desk, altered, headers_of, open_desk, refusal, topup

THIEF = "0x" + "66" * 20


def signed(key: str, requirements: PaymentRequirements) -> dict[str, Any]:
    """The inner payload that the official client signs for any requirement, ours or not."""
    scheme = ExactEvmScheme(EthAccountSigner(Account.from_key(key)))
    return scheme.create_payment_payload(requirements)


@pytest.mark.parametrize(
    "change",
    [
        {"amount": "1"},
        {"pay_to": THIEF},
        {"max_timeout_seconds": 999999},
        {"extra": {"name": "Test Dollar", "version": "2"}},
    ],
    ids=lambda change: next(iter(change)),
)
async def test_a_requirement_we_did_not_make_is_refused(
    use_cases: Desk, wallet: str, change: dict[str, Any]
) -> None:
    payload = await use_cases.pay(wallet)
    assert await refusal(use_cases, altered(payload, **change)) == "invalid_payment_requirements"


async def test_more_sats_than_were_offered_are_not_believed(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    extra = {**payload.accepted.extra, "sats": "1000000"}
    assert await refusal(use_cases, altered(payload, extra=extra)) == "invalid_payment_requirements"


async def test_an_offer_does_not_outlive_its_time(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    use_cases.clock.ahead = use_cases.x402.settings.offer_for
    assert await refusal(use_cases, payload) == "invalid_payment_requirements"


async def test_an_authorization_for_somebody_else_is_refused(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    other = signed(wallet, payload.accepted.model_copy(update={"pay_to": address_of(wallet)}))
    assert "recipient" in await refusal(use_cases, payload.model_copy(update={"payload": other}))


async def test_an_authorization_for_less_is_refused(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    less = signed(wallet, payload.accepted.model_copy(update={"amount": "999999"}))
    assert "value" in await refusal(use_cases, payload.model_copy(update={"payload": less}))


async def test_a_signature_for_another_chain_is_refused(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    other = signed(wallet, payload.accepted.model_copy(update={"network": "eip155:8453"}))
    reason = await refusal(use_cases, payload.model_copy(update={"payload": other}))
    assert "signature" in reason


async def test_a_network_that_is_not_taken_is_refused(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    assert await refusal(use_cases, altered(payload, network="eip155:1")) == "invalid_network"


async def test_an_expired_authorization_is_refused(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    inner = json.loads(json.dumps(payload.payload))
    inner["authorization"]["validBefore"] = "1"
    assert "valid_before" in await refusal(use_cases, payload.model_copy(update={"payload": inner}))


async def test_somebody_elses_money_cannot_be_signed_for(use_cases: Desk, wallet: str) -> None:
    victim = use_cases.chain.new_wallet(5_000_000)
    payload = await use_cases.pay(wallet)
    inner = json.loads(json.dumps(payload.payload))
    inner["authorization"]["from"] = address_of(victim)
    assert "signature" in await refusal(use_cases, payload.model_copy(update={"payload": inner}))


async def test_a_nonce_that_paid_is_no_use_with_another_signature(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    assert (await use_cases.buy(payload)).state is State.CONFIRMED
    inner = {**payload.payload, "signature": "0x" + "11" * 65}
    with pytest.raises(Conflict) as refused:
        await use_cases.buy(payload.model_copy(update={"payload": inner}))
    assert refused.value.facts["reason"] == "conflicting_nonce"


async def test_an_authorization_that_others_carried_to_the_chain_is_still_the_payers(
    use_cases: Desk, wallet: str
) -> None:
    """Anyone may submit it; the money is ours then, and its payer is credited once."""
    payload = await use_cases.pay(wallet)
    way = use_cases.x402.ways.find(use_cases.chain.network, "exact")
    assert way is not None
    assert (await way.facilitator.settle(payload, payload.accepted)).success
    paid = await use_cases.buy(payload)
    assert paid.state is State.CONFIRMED
    assert (await use_cases.buy(payload)).id == paid.id
    now = use_cases.clock.now()
    bucket = await use_cases.store.write(lambda conn: settle_account(conn, paid.account, now=now))
    assert bucket.posted == 1000


def as_version_1(payload: PaymentPayload, network: str) -> bytes:
    """What anybody can build from a transaction's public calldata."""
    document = {"x402Version": 1, "scheme": "exact", "network": network, "payload": payload.payload}
    return base64.b64encode(json.dumps(document).encode())


async def test_nobody_can_claim_what_another_wallet_signed_and_others_carried(
    use_cases: Desk, wallet: str
) -> None:
    payload = await use_cases.pay(wallet)
    way = use_cases.x402.ways.find(use_cases.chain.network, "exact")
    assert way is not None
    assert (await way.facilitator.settle(payload, payload.accepted)).success
    now = use_cases.clock.now()
    thief = await use_cases.store.write(
        lambda conn: accounts.create(conn, id="acc_thief", actor="test", reason="test", now=now).id
    )
    header = as_version_1(payload, use_cases.chain.network)
    for purpose, account in ((Purpose.TOPUP, thief), (Purpose.CREATE, thief), (Purpose.CREATE, None)):
        wanted = replace(topup(account=account), purpose=purpose)
        with pytest.raises(Conflict) as refused:
            await use_cases.buy_with(header, wanted)
        assert refused.value.facts["reason"] in ("credited_to_payer", "payment_used")
    # It is credit, and its payer's.
    payment = await use_cases.store.read(lambda conn: records.load(conn, refused.value.facts["payment_id"]))
    assert (payment.state, payment.purpose, payment.sats) == (State.CONFIRMED, Purpose.TOPUP, 1000)
    buckets = await use_cases.store.write(
        lambda conn: (
            credits.account_for_wallet(conn, wallet_of(address_of(wallet)), now=now).id == payment.account,
            settle_account(conn, payment.account, now=now).posted,
            settle_account(conn, open_and(conn, thief, now), now=now).posted,
        )
    )
    assert buckets == (True, 1000, 0)


async def test_who_copies_a_payment_for_another_does_not_change_whose_it_is(
    use_cases: Desk, wallet: str
) -> None:
    """Its payer presented it for a friend; nothing came of that, and then it was carried to the chain."""
    payload, now = await use_cases.pay(wallet), use_cases.clock.now()

    def make(conn: Connection) -> None:
        for name in ("acc_friend", "acc_thief"):
            accounts.create(conn, id=name, actor="test", reason="test", now=now)

    await use_cases.store.write(make)
    presented = use_cases.x402.checkout.present(headers_of(payload))
    assert presented is not None
    async with use_cases.x402.checkout.take(presented, topup(account="acc_friend")) as taken:
        await use_cases.x402.checkout.withdraw(taken.payment.id, "the settler said no")
    way = use_cases.x402.ways.find(use_cases.chain.network, "exact")
    assert way is not None
    assert (await way.facilitator.settle(payload, payload.accepted)).success
    with pytest.raises(Conflict):
        await use_cases.buy(payload, topup(account="acc_thief", request="r2"))
    payment = await use_cases.store.read(lambda conn: records.load(conn, taken.payment.id))
    assert (payment.state, payment.account) == (State.CONFIRMED, "acc_friend")


def open_and(conn: Connection, account: str, now: datetime) -> str:
    open_bucket(conn, account, now=now)
    return account


async def test_one_payment_to_an_address_that_two_installations_share_counts_for_one_of_them(
    evm: Anvil, tmp_path: Path, wallet: str
) -> None:
    """The payer gets an offer of each, signs once, and presents it at both doors."""
    options = {"network": {"options": {"shared_pay_to": True}}}
    async with AsyncExitStack() as closing:
        desks = []
        for name, key in (("a", KEYS[2]), ("b", KEYS[3])):
            (tmp_path / name).mkdir()
            store = open_store(f"sqlite:///{tmp_path}/{name}/sandboxer.db")
            closing.push_async_callback(store.close)
            opened = open_desk(evm, store, tmp_path / name, signer_key=key, **options)
            desks.append(await closing.enter_async_context(opened))
        payload = await desks[0].pay(wallet)
        assert (await desks[0].buy(payload)).state is State.CONFIRMED
        offer = next(one for one in (await desks[1].offer()).accepts if one.network == evm.network)
        with pytest.raises(PaymentRefused):
            await desks[1].buy(payload.model_copy(update={"accepted": offer}))
        posted = select(ledger_transfers.c.id)
        assert (await desks[1].store.read(lambda conn: conn.execute(posted).all())) == []


async def test_a_spent_nonce_without_the_payers_signature_gives_nothing(use_cases: Desk, wallet: str) -> None:
    payload = await use_cases.pay(wallet)
    way = use_cases.x402.ways.find(use_cases.chain.network, "exact")
    assert way is not None
    assert (await way.facilitator.settle(payload, payload.accepted)).success
    forged = payload.model_copy(update={"payload": {**payload.payload, "signature": "0x" + "11" * 65}})
    await refusal(use_cases, forged)


async def test_one_payment_identifier_names_one_payment(use_cases: Desk, wallet: str) -> None:
    name = {"payment-identifier": {"info": {"required": False, "id": "order-0123456789abcdef"}}}
    first = await use_cases.pay(wallet, extensions=name)
    paid = await use_cases.buy(first)
    assert (await use_cases.buy(first)).id == paid.id
    with pytest.raises(Conflict) as refused:
        await use_cases.buy(await use_cases.pay(wallet, extensions=name))
    assert refused.value.facts["reason"] == "payment_identifier_conflict"
    other = use_cases.chain.new_wallet(5_000_000)
    assert (await use_cases.buy(await use_cases.pay(other, extensions=name))).id != paid.id


@pytest.mark.parametrize("name", ["short", "x" * 129, "with space 0123456789", 17, "né" * 10])
async def test_a_bad_payment_identifier_is_refused(use_cases: Desk, wallet: str, name: object) -> None:
    extension = {"payment-identifier": {"info": {"required": False, "id": name}}}
    with pytest.raises(InvalidRequest):
        await use_cases.buy(await use_cases.pay(wallet, extensions=extension))


BOMBS = {
    "not base 64": b"%%%",
    "not json": base64.b64encode(b"hello"),
    "a list": base64.b64encode(b"[]"),
    "empty": base64.b64encode(b"{}"),
    "deep": base64.b64encode(b"[" * 10_000),
    "deeper inside": base64.b64encode(
        b'{"x402Version":2,"payload":' + b'{"a":' * 2000 + b"1" + b"}" * 2000 + b"}"
    ),
    "long": base64.b64encode(b" " * 20_000),
    "version 3": base64.b64encode(b'{"x402Version":3}'),
}


@pytest.mark.parametrize("header", BOMBS.values(), ids=BOMBS)
def test_a_header_that_is_no_payment_is_refused(use_cases: Desk, header: bytes) -> None:
    with pytest.raises(InvalidRequest):
        use_cases.x402.checkout.present([(b"payment-signature", header)])


def test_two_payments_in_one_request_are_refused(use_cases: Desk) -> None:
    with pytest.raises(InvalidRequest):
        use_cases.x402.checkout.present([(b"payment-signature", b"e30="), (b"x-payment", b"e30=")])


@pytest.mark.parametrize("value", ["-1", "1e9", "9" * 5000, "٣", None, 1.5, True, {}])
async def test_amounts_are_whole_numbers(use_cases: Desk, wallet: str, value: object) -> None:
    payload = await use_cases.pay(wallet)
    inner = json.loads(json.dumps(payload.payload))
    inner["authorization"]["value"] = value
    document = payload.model_copy(update={"payload": inner}).model_dump(by_alias=True, mode="json")
    header = base64.b64encode(json.dumps(document).encode())
    with pytest.raises(SandboxerError):
        await use_cases.buy_with(header)
