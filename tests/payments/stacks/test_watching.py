"""What became of a payment is read from the chain by payer and nonce, whatever the relay says or forgets."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import httpx
import pytest
from x402.schemas import PaymentPayload, PaymentRequirements

from sandboxer.kernel.errors import ChainUnavailable
from sandboxer.payments.lifecycle import State
from sandboxer.payments.records import Payment, Purpose
from sandboxer.payments.stacks.clarity import FtCondition, Sent
from sandboxer.payments.stacks.nodes import StacksNode
from sandboxer.payments.stacks.relay import Relay
from sandboxer.payments.stacks.transactions import (
    parse_hex,
    sha512_256,
    sign_origin,
    write_transaction,
)
from sandboxer.payments.stacks.way import StacksWatcher, stacks_way
from sandboxer.payments.x402.ways import Fate
from testchains.stacks.sponsoring import sign_sponsor
from tests.payments.stacks.vectors import VECTORS
from tests.support.payments.stacks import Till, network_settings

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def record(
    till: Till, payload: PaymentPayload, asked: PaymentRequirements, txid: str | None = None
) -> Payment:
    read = till.way.reader.read(payload)
    return Payment(
        id="pay_1",
        state=State.SETTLEMENT_PENDING,
        reason="",
        network=asked.network,
        payer=read.payer,
        nonce=read.nonce,
        payload_hash="",
        identifier=None,
        scheme=asked.scheme,
        asset=asked.asset,
        amount=int(asked.amount),
        sats=1_000,
        account="acc_1",
        purpose=Purpose.TOPUP,
        details={},
        payload=payload.model_dump(mode="json", by_alias=True, exclude_none=True),
        requirements=asked.model_dump(mode="json", by_alias=True),
        txid=txid,
        block=None,
        valid_until=None,
        created_at=NOW,
        updated_at=NOW,
        look_at=None,
        looks=0,
    )


async def test_a_payment_is_followed_from_nowhere_to_deep_in_the_chain(till: Till) -> None:
    asked = till.ask(1_000)
    payload = till.sign(asked)
    assert till.way.reader.is_signed(payload, asked)
    payment = record(till, payload, asked)
    assert (await till.way.watcher.look(payment)).fate is Fate.UNSEEN
    # Its answer gets lost twice: we never learn the transaction id, and find it all the same.
    till.chain.relay.faults.arm("drop_answer", times=2)
    lost = await till.way.facilitator.settle(payload, asked)
    payment = replace(payment, txid=lost.transaction)
    seen = await till.way.watcher.look(payment)
    assert (seen.fate, seen.txid) == (Fate.SEEN, till.chain.relay.desk.broadcasts[-1])
    till.chain.mine(3)
    found = await till.way.watcher.look(payment)
    assert (found.fate, found.confirmations, found.txid) == (Fate.CONFIRMED, 3, seen.txid)
    assert found.block


async def test_a_reorganisation_takes_confirmations_back(till: Till) -> None:
    asked = till.ask(1_000)
    payload = till.sign(asked)
    payment = record(till, payload, asked)
    await till.way.facilitator.settle(payload, asked)
    till.chain.mine()
    first = await till.way.watcher.look(payment)
    assert (first.fate, till.received()) == (Fate.CONFIRMED, 1_000)
    till.chain.reorg(1)
    assert (await till.way.watcher.look(payment)).fate is Fate.SEEN
    assert till.received() == 0
    till.chain.mine()
    again = await till.way.watcher.look(payment)
    assert (again.fate, till.received()) == (Fate.CONFIRMED, 1_000)
    assert again.block != first.block


async def test_a_transfer_that_the_chain_undid_has_failed(till: Till) -> None:
    """It never passes our own check; here the payer goes to a relay that looks less closely."""
    asked = till.ask(1_000)
    good = till.sign(asked)
    transaction = parse_hex(good.payload["transaction"])
    condition = transaction.post_conditions[0]
    assert isinstance(condition, FtCondition)
    spoiled = replace(transaction, post_conditions=(replace(condition, code=Sent.GREATER),))
    raw = write_transaction(sign_origin(spoiled, till.payer.key)).hex()
    payload = good.model_copy(update={"payload": {"transaction": raw}})
    body = payload.model_dump(mode="json", by_alias=True, exclude_none=True)
    async with httpx.AsyncClient(trust_env=False) as http:
        await Relay(till.shop.relay, http).settle(body, asked.model_dump(mode="json", by_alias=True))
    till.chain.mine()
    failed = await till.way.watcher.look(record(till, payload, asked))
    assert (failed.fate, failed.reason) == (Fate.FAILED, "chain_abort")
    assert till.received() == 0


async def test_a_nonce_spent_for_something_else_replaces_the_payment(till: Till) -> None:
    asked = till.ask(1_000)
    payload = till.sign(asked)
    other = till.sign(till.ask(2_000))
    assert (await till.way.facilitator.settle(other, till.ask(2_000))).success
    # Until a block decides, the payment may still come.
    assert (await till.way.watcher.look(record(till, payload, asked))).fate is Fate.UNSEEN
    till.chain.mine()
    replaced = await till.way.watcher.look(record(till, payload, asked))
    assert (replaced.fate, replaced.reason) == (Fate.REPLACED, "nonce_replacement")


async def test_another_sponsors_signature_on_the_same_payment_is_the_same_payment(till: Till) -> None:
    asked = till.ask(1_000)
    payload = till.sign(asked)
    sponsor = till.chain.wallet(STX=1_000_000)
    signed = sign_sponsor(parse_hex(payload.payload["transaction"]), sponsor.key, nonce=0, fee=500)
    assert till.chain.simnet.broadcast(write_transaction(signed)).is_success
    till.chain.mine()
    found = await till.way.watcher.look(record(till, payload, asked))
    assert (found.fate, found.txid) == (Fate.CONFIRMED, signed.txid)
    # Presented again, it is told apart from a payment that can still be made.
    verdict = await till.way.facilitator.verify(payload, asked)
    assert (verdict.is_valid, verdict.invalid_reason) == (False, "client_bad_nonce")


async def test_without_a_node_the_relay_is_asked_and_its_own_failures_are_not_final(till: Till) -> None:
    asked = till.ask(1_000)
    payload = till.sign(asked)
    async with httpx.AsyncClient(trust_env=False) as http:
        watcher = StacksWatcher(Relay(till.shop.relay, http), None)
        assert (await watcher.look(record(till, payload, asked))).fate is Fate.UNSEEN
        unsponsored = parse_hex(payload.payload["transaction"]).txid
        assert (await watcher.look(record(till, payload, asked, unsponsored))).fate is Fate.UNSEEN
        settled = await till.way.facilitator.settle(payload, asked)
        payment = record(till, payload, asked, settled.transaction)
        assert (await watcher.look(payment)).fate is Fate.SEEN
        till.chain.mine()
        assert (await watcher.look(payment)).fate is Fate.CONFIRMED
        assert (await watcher.look(replace(payment, txid="00" * 32))).fate is Fate.UNKNOWN


async def test_who_cannot_pay_is_refused_before_anything_is_made(till: Till) -> None:
    till.payer = till.chain.wallet(SBTC=999)
    asked = till.ask(1_000)
    verdict = await till.way.facilitator.verify(till.sign(asked), asked)
    assert (verdict.is_valid, verdict.invalid_reason) == (False, "insufficient_funds")
    far = await till.way.facilitator.verify(till.sign(till.ask(900), ahead=25), till.ask(900))
    assert (far.is_valid, far.invalid_reason) == (False, "client_bad_nonce")


async def test_a_nonce_spent_by_what_we_cannot_read_replaces_the_payment_all_the_same(till: Till) -> None:
    """The local chain takes transfers only; so a contract is put into a node's mouth."""
    asked = till.ask(1_000)
    payment = record(till, till.sign(asked), asked)
    deployed = next(v["hex"] for v in VECTORS["refused"] if v["name"] == "deploy")
    txid = sha512_256(bytes.fromhex(deployed)).hex()
    listed = {"tx_id": txid, "sender_address": payment.payer, "nonce": 0, "tx_status": "success"}

    def node(request: httpx.Request) -> httpx.Response:
        answers: dict[str, object] = {
            "/v2/info": {"stacks_tip_height": 7, "network_id": 0x80000000},
            f"/v2/accounts/{payment.payer}": {"nonce": 1},
            f"/extended/v1/address/{payment.payer}/transactions": {"results": [listed]},
            f"/extended/v1/tx/{txid}/raw": {"raw_tx": deployed},
        }
        return httpx.Response(200, json=answers[request.url.path])

    async with httpx.AsyncClient(transport=httpx.MockTransport(node)) as http:
        watcher = StacksWatcher(Relay(till.shop.relay, http), StacksNode("http://node", http))
        assert (await watcher.look(payment)).fate is Fate.REPLACED
        deployed = deployed[:-2] + "00"
        with pytest.raises(ChainUnavailable, match="another id"):
            await watcher.look(payment)


@pytest.mark.parametrize(
    ("status", "fate"),
    [
        ({"status": "failed", "terminalReason": "chain_abort"}, Fate.FAILED),
        ({"status": "failed", "terminalReason": "sender_nonce_stale"}, Fate.UNSEEN),
        ({"status": "failed", "terminalReason": "sponsor_failure"}, Fate.UNSEEN),
        ({"status": "replaced", "terminalReason": "nonce_replacement"}, Fate.UNSEEN),
        ({"status": "not_found", "terminalReason": "expired"}, Fate.UNKNOWN),
        ({"status": "queued"}, Fate.SEEN),
        ({"status": "broadcast"}, Fate.SEEN),
    ],
)
async def test_a_relay_alone_is_believed_only_about_this_very_transaction(
    till: Till, status: dict[str, str], fate: Fate
) -> None:
    asked = till.ask(1_000)
    payment = record(till, till.sign(asked), asked, "ab" * 32)
    says = httpx.MockTransport(lambda _: httpx.Response(200, json=status))
    async with httpx.AsyncClient(transport=says) as http:
        assert (await StacksWatcher(Relay("http://relay", http), None).look(payment)).fate is fate


@pytest.mark.parametrize(
    "answer",
    [
        httpx.Response(500),
        httpx.Response(200, text="<html>"),
        httpx.Response(200, json=[]),
        httpx.Response(200, json={"nonce": "7"}),
        httpx.Response(200, json={"nonce": -1}),
        httpx.Response(200, json={"nonce": True}),
    ],
)
async def test_a_node_that_talks_nonsense_is_unavailable(answer: httpx.Response) -> None:
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: answer)) as http:
        with pytest.raises(ChainUnavailable):
            await StacksNode("http://node", http).nonce("ST1")


async def test_a_shop_needs_a_relay_and_addresses_of_its_own_network(till: Till) -> None:
    entry = till.chain.settings(till.owner.address)
    async with httpx.AsyncClient(trust_env=False) as http:
        for wrong in (
            {"facilitator": "in_process"},
            {"facilitator": "ftp://relay"},
            {"network": "stacks:1"},
            {"network": "stacks:7"},
            {"pay_to": "ST1NOBODY"},
            {"assets": [{"code": "SBTC", "id": "STX"}]},
            {"assets": [{"code": "SBTC", "id": "ST1F7QA2MDF17S807EPA36TSS8AMEFY4KA9TVGWXT.unknown"}]},
        ):
            settings = network_settings({**entry, **wrong}).networks[0]
            with pytest.raises(Exception, match=r"x402|address|transaction"):
                stacks_way(settings, http)
