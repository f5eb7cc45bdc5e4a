"""An agent that signs for the most it would pay: over HTTP, with Permit2, and only what it asks for moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from x402.http.clients.httpx import wrapHttpxWithPayment
from x402.http.utils import (
    decode_payment_required_header,
    decode_payment_response_header,
    encode_payment_signature_header,
)
from x402.schemas import PaymentRequired

from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from testchains.evm.permit2 import deploy_permit2
from tests.payments.x402.facilitator import running_facilitator
from tests.payments.x402.upto import UPTO, pay_upto, ready_wallet, signed_upto, upto_client
from tests.support.chains.evm import evm
from tests.support.http.served import Served
from tests.support.http.x402 import credit, shop, state_of
from tests.support.payments.x402 import SHOP

__all__ = ["evm"]


@pytest.fixture
async def served(evm: Anvil, tmp_path: Path) -> AsyncIterator[Served]:
    deploy_permit2(evm)
    async with shop(evm, tmp_path, network=UPTO) as running:
        yield running


@pytest.fixture
def wallet(served: Served, evm: Anvil) -> str:
    return ready_wallet(evm, 20_000_000)


async def permit_for(served: Served, wallet: str, sats: int, **asked: Any) -> dict[str, str]:
    """The header of a payment for at most so many sats; `asked` is signed in place of what we asked for."""
    answer = await served.client.http.post("/v1/topups", json={"sats": sats})
    required = decode_payment_required_header(answer.headers["payment-required"])
    assert isinstance(required, PaymentRequired)
    payload = await pay_upto(wallet, required)
    if asked:
        other = signed_upto(wallet, payload.accepted.model_copy(update=asked))
        payload = payload.model_copy(update={"payload": other})
    return {"payment-signature": encode_payment_signature_header(payload)}


async def test_an_agent_signs_for_the_most_and_pays_for_what_it_asks(
    served: Served, evm: Anvil, wallet: str
) -> None:
    header = await permit_for(served, wallet, 10_000)
    before, had = evm.balance(SHOP), evm.balance(address_of(wallet))
    answer = await served.client.http.post("/v1/topups", json={"sats": 4000}, headers=header)
    assert answer.status_code == 201, answer.text
    bought = answer.json()
    assert (bought["payment"]["state"], bought["payment"]["sats"]) == ("confirmed", 4000)
    # A bitcoin is 100 000 dollars here: 4000 sats are four dollars.
    assert evm.balance(SHOP) - before == int(bought["payment"]["amount"]) == 4_000_000
    assert had - evm.balance(address_of(wallet)) == 4_000_000
    assert decode_payment_response_header(answer.headers["payment-response"]).success
    assert await credit(served, bought["key"]["account"]) == 4000


async def test_the_same_permit_again_is_the_same_payment(served: Served, evm: Anvil, wallet: str) -> None:
    header = await permit_for(served, wallet, 2000)
    first = await served.client.http.post("/v1/topups", json={"sats": 1000}, headers=header)
    before = evm.balance(SHOP)
    again = await served.client.http.post("/v1/topups", json={"sats": 1000}, headers=header)
    assert again.json()["payment"]["id"] == first.json()["payment"]["id"]
    rest = await served.client.http.post("/v1/topups", json={"sats": 999}, headers=header)
    assert (rest.status_code, rest.json()["reason"]) == (409, "payment_used")
    assert evm.balance(SHOP) == before
    assert await credit(served, first.json()["key"]["account"]) == 1000


async def test_more_than_was_signed_for_is_refused(served: Served, evm: Anvil, wallet: str) -> None:
    header = await permit_for(served, wallet, 1000)
    before = evm.balance(SHOP)
    answer = await served.client.http.post("/v1/topups", json={"sats": 1001}, headers=header)
    assert (answer.status_code, answer.json()["reason"]) == (402, "amount_insufficient")
    assert evm.balance(SHOP) == before


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"pay_to": "0x" + "66" * 20}, "recipient"),
        ({"amount": "1"}, "amount"),
        ({"max_timeout_seconds": 1}, "deadline"),
    ],
    ids=["another recipient", "less", "expired"],
)
async def test_a_permit_for_something_else_is_refused(
    served: Served, evm: Anvil, wallet: str, asked: dict[str, Any], why: str
) -> None:
    header = await permit_for(served, wallet, 1000, **asked)
    before = evm.balance(SHOP)
    answer = await served.client.http.post("/v1/topups", json={"sats": 1000}, headers=header)
    assert answer.status_code == 402
    assert why in answer.json()["reason"]
    assert evm.balance(SHOP) == before


async def test_a_sandbox_costs_the_price_that_was_asked(served: Served, evm: Anvil, wallet: str) -> None:
    before = evm.balance(SHOP)
    async with wrapHttpxWithPayment(upto_client(wallet), base_url=served.url, timeout=30) as http:
        answer = await http.post("/v1/sandboxes", json={})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert (made["state"], made["payment"]["state"]) == ("ready", "confirmed")
    assert evm.balance(SHOP) - before == int(made["payment"]["amount"]) > 0


async def test_an_outside_facilitator_whose_answer_is_lost_moves_the_part_once(
    evm: Anvil, tmp_path: Path
) -> None:
    deploy_permit2(evm)
    wallet = ready_wallet(evm, 20_000_000)
    with running_facilitator(evm) as facilitator:
        options = {"facilitator_address": facilitator.address}
        network = {**UPTO, "facilitator": facilitator.url, "options": options}
        async with shop(evm, tmp_path, network=network, settle_timeout="1s") as served:
            header = await permit_for(served, wallet, 2000)
            before = evm.balance(SHOP)
            facilitator.stop_at("settled")
            answer = await served.client.http.post("/v1/topups", json={"sats": 500}, headers=header)
            assert answer.status_code in (201, 202), answer.text
            bought = answer.json()
            await state_of(served, bought["payment"]["id"], "confirmed")
            facilitator.go_on()
            assert evm.balance(SHOP) - before == 500_000
            assert await credit(served, bought["key"]["account"]) == 500
