"""An agent with nothing but a wallet: 402, pay, served. The official client against a real chain."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from pathlib import Path

from sqlalchemy import Connection, func, select
from x402.extensions import bazaar
from x402.http import FacilitatorConfig, HTTPFacilitatorClientSync
from x402.http.utils import (
    decode_payment_required_header,
    decode_payment_response_header,
)

from sandboxer.backends.contract import Backend
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.kernel.errors import NoCapacity, ProvisionFailed
from sandboxer.money.buckets import unconfirmed
from sandboxer.money.metering import open_holds
from sandboxer.money.verification import verify
from sandboxer.payments.records import Purpose
from sandboxer.payments.x402.offers import SERVICE, TAGS
from sandboxer.payments.x402.presented import Wanted
from sandboxer.settings import Settings
from sandboxer.store.metadata import metadata
from testchains.evm import Anvil
from testchains.evm.anvil import address_of
from tests.support.chains.evm import evm
from tests.support.http.flows import flow
from tests.support.http.served import Served, serving
from tests.support.http.signed import Credentials
from tests.support.http.x402 import (
    agent,
    credit,
    served,  # noqa: F401
    settings_with,
    shop,
    signed,
    wallet,  # noqa: F401
)
from tests.support.payments.x402 import SHOP, paying_client

__all__ = ["evm"]


@flow("createSandbox", "getPayment")
async def test_a_wallet_without_an_account_gets_a_sandbox_and_a_key(
    served: Served, evm: Anvil, wallet: str
) -> None:
    before = evm.balance(SHOP)
    async with agent(served, wallet) as http:
        answer = await http.post("/v1/sandboxes", json={})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["state"] == "ready"
    assert made["payment"]["state"] == "confirmed"
    paid = evm.balance(SHOP) - before
    assert paid == int(made["payment"]["amount"]) > 0
    receipt = decode_payment_response_header(answer.headers["payment-response"])
    assert receipt.success
    assert receipt.transaction == made["payment"]["transaction"]

    mine = served.as_(Credentials(made["key"]["public_key"], made["key"]["secret_key"]))
    assert (await mine.get(f"/v1/sandboxes/{made['id']}")).status_code == 200
    seen = await served.client.http.get(f"/v1/payments/{made['payment']['id']}")
    assert seen.json()["sandbox_id"] == made["id"]
    account = made["key"]["account"]
    assert await served.platform.store.read(lambda conn: unconfirmed(conn, account)) == 0
    assert await credit(served, account) > 0


async def test_known_and_in_credit_nobody_is_asked_again(served: Served, wallet: str) -> None:
    async with agent(served, wallet) as http:
        made = (await http.post("/v1/topups", json={"sats": 5000})).json()
    mine = served.as_(Credentials(made["key"]["public_key"], made["key"]["secret_key"]))
    answer = await mine.post("/v1/sandboxes", {})
    assert answer.status_code == 201
    assert "payment-response" not in answer.headers


async def test_the_body_is_judged_before_money_is_asked_for(served: Served) -> None:
    answer = await served.client.http.post("/v1/sandboxes", json={"profile": "no-such-profile"})
    assert answer.status_code in (404, 422)
    answer = await served.client.http.post("/v1/topups", json={"sats": -5})
    assert answer.status_code == 422


async def test_a_402_offers_in_header_and_body_and_tells_how_to_sign_in(served: Served) -> None:
    answer = await served.client.http.post("/v1/sandboxes", json={})
    assert answer.status_code == 402
    required = decode_payment_required_header(answer.headers["payment-required"])
    body = answer.json()
    assert body["x402Version"] == required.x402_version == 2
    assert body["accepts"][0]["amount"] == required.accepts[0].amount  # type: ignore[union-attr]
    extensions = body["extensions"]
    assert {"payment-identifier", "sign-in-with-x", "bazaar"} <= set(extensions)
    assert len(extensions["sign-in-with-x"]["info"]["nonce"]) >= 8


async def test_a_402_writes_no_row(served: Served) -> None:
    def rows(conn: Connection) -> dict[str, int]:
        return {
            table.name: conn.execute(select(func.count()).select_from(table)).scalar_one()
            for table in metadata.sorted_tables
        }

    async def ask() -> None:
        http = served.client.http
        for path, body in (("/v1/sandboxes", {}), ("/v1/topups", {"sats": 500})):
            assert (await http.post(path, json=body)).status_code == 402
        assert (await http.post("/v1/keys/purchase", json={"tier": 1, "months": 1})).status_code == 402
        assert (await http.get("/discovery/resources")).status_code == 200

    await ask()
    before = await served.platform.store.read(rows)
    for _ in range(5):
        await ask()
    assert await served.platform.store.read(rows) == before


@flow("topUp", "listPayments")
async def test_a_top_up_credits_exactly_what_was_asked_for(served: Served, evm: Anvil, wallet: str) -> None:
    async with agent(served, wallet) as http:
        answer = await http.post("/v1/topups", json={"sats": 1234})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    mine = served.as_(Credentials(made["key"]["public_key"], made["key"]["secret_key"]))
    me = (await mine.get("/v1/accounts/me")).json()
    assert me["money"]["balance"] == 1234
    listed = (await mine.get("/v1/payments")).json()["payments"]
    assert [one["id"] for one in listed] == [made["payment"]["id"]]


async def test_anyone_may_pay_for_any_account_and_gets_no_key_to_it(
    served: Served, evm: Anvil, wallet: str
) -> None:
    other = await served.stranger("acc_other")
    public_id = (await other.get("/v1/accounts/me")).json()["account"]["public_id"]
    async with agent(served, wallet) as http:
        answer = await http.post("/v1/topups", json={"sats": 700, "account": public_id})
    assert answer.status_code == 201, answer.text
    assert answer.json()["key"] is None
    assert await credit(served, "acc_other") == 700
    async with agent(served, wallet) as http:
        unknown = await http.post("/v1/topups", json={"sats": 700, "account": "pub_" + "0" * 26})
    assert unknown.status_code == 404


async def test_the_same_top_up_does_not_serve_a_second_account(
    served: Served, evm: Anvil, wallet: str
) -> None:
    first, second = await served.stranger("acc_first"), await served.stranger("acc_second")
    header = await signed(served, wallet, "/v1/topups", {"sats": 700})
    paid = await first.post("/v1/topups", {"sats": 700}, headers=header)
    assert paid.status_code == 201, paid.text
    again = await first.post("/v1/topups", {"sats": 700}, headers=header)
    assert again.json()["payment"]["id"] == paid.json()["payment"]["id"]
    other = await second.post("/v1/topups", {"sats": 700}, headers=header)
    nobody = await served.client.http.post("/v1/topups", json={"sats": 700}, headers=header)
    assert (other.status_code, nobody.status_code) == (409, 409), other.text
    assert await credit(served, "acc_first") == 700


@flow("buyKey")
async def test_a_tier_is_bought_with_a_key_to_use_it(served: Served, evm: Anvil, wallet: str) -> None:
    evm.fund(address_of(wallet), 10_000_000)
    async with agent(served, wallet) as http:
        answer = await http.post("/v1/keys/purchase", json={"tier": 1, "months": 1})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["tier"] == 1
    mine = served.as_(Credentials(made["key"]["public_key"], made["key"]["secret_key"]))
    me = (await mine.get("/v1/accounts/me")).json()
    assert me["money"]["balance"] == 0
    assert me["account"]["tier"] == 1


@flow("getX402", "listGoods")
async def test_what_is_for_sale_can_be_found(served: Served, evm: Anvil) -> None:
    known = (await served.client.http.get("/.well-known/x402")).json()
    assert known["networks"] == [evm.network]
    goods = (await served.client.http.get("/discovery/resources")).json()["items"]
    assert {good["operation"] for good in goods} == {"createSandbox", "extendTtl", "topUp", "buyKey"}
    assert goods[0]["accepts"][0]["network"] == evm.network


async def test_a_catalogue_of_the_bazaar_can_file_whatever_is_for_sale(served: Served) -> None:
    """Read and judged by the official package, from a 402 as a payer sends it on, and from our own list."""
    made = await served.client.post("/v1/sandboxes", {})
    sandbox = f"/v1/sandboxes/{made.json()['id']}/ttl"
    wanted = {
        "/v1/sandboxes": ("POST", {}),
        sandbox: ("PATCH", {"duration": "5m"}),
        "/v1/topups": ("POST", {"sats": 500}),
        "/v1/keys/purchase": ("POST", {"tier": 1, "months": 1}),
    }
    for path, (method, body) in wanted.items():
        answer = await served.client.http.request(method, path, json=body)
        assert answer.status_code == 402, answer.text
        required = decode_payment_required_header(answer.headers["payment-required"])
        found = bazaar.extract_discovery_info(required.model_dump(by_alias=True), required.accepts[0])
        assert found is not None, path
        assert (found.method, found.service_name, found.tags) == (method, SERVICE, list(TAGS))
        assert found.resource_url.endswith(path.replace(sandbox, "/v1/sandboxes/:sandbox_id/ttl"))
        assert bazaar.validate_discovery_extension_spec(found.extensions["bazaar"]).valid  # type: ignore[index]
    goods = await asyncio.to_thread(listed, str(served.client.http.base_url))
    assert len(goods.items) == len(wanted)
    for good in goods.items:
        assert good.extensions is not None
        assert bazaar.validate_and_extract(good.extensions["bazaar"]).errors == []
        assert (good.x402_version, good.type, good.service_name) == (2, "http", SERVICE)


def listed(url: str) -> bazaar.DiscoveryResourcesResponse:
    with bazaar.with_bazaar(HTTPFacilitatorClientSync(FacilitatorConfig(url=url))) as client:
        return client.extensions.bazaar.list_resources()


async def test_more_time_can_be_paid_for_by_the_wallet_that_owns_it(
    served: Served, evm: Anvil, wallet: str
) -> None:
    async with agent(served, wallet) as http:
        made = (await http.post("/v1/sandboxes", json={})).json()
        before = evm.balance(SHOP)
        # What cannot be had is refused before it is paid.
        for wrong, status in (
            ({"duration": "900d"}, 422),
            ({"duration": "5m", "quote_id": "quo_" + "0" * 26}, 404),
        ):
            refused = await http.patch(f"/v1/sandboxes/{made['id']}/ttl", json=wrong)
            assert refused.status_code == status, refused.text
        assert evm.balance(SHOP) == before
        answer = await http.patch(f"/v1/sandboxes/{made['id']}/ttl", json={"duration": "5m"})
        assert answer.status_code == 200, answer.text
        assert evm.balance(SHOP) > before
    thief = evm.new_wallet(5_000_000)
    async with agent(served, thief) as http:
        answer = await http.patch(f"/v1/sandboxes/{made['id']}/ttl", json={"duration": "5m"})
    assert answer.status_code in (401, 404)
    assert evm.balance(address_of(thief)) == 5_000_000


async def test_nothing_is_paid_for_a_sandbox_that_could_not_be_made(
    evm: Anvil, tmp_path: Path, wallet: str
) -> None:
    failing = Scripted(
        name="ext.namespaces", fail_on={"provision": [NoCapacity(resource="memory", why="full")]}
    )
    async with shop(evm, tmp_path, failing) as served, agent(served, wallet) as http:
        before = evm.balance(address_of(wallet))
        answer = await http.post("/v1/sandboxes", json={})
        assert answer.status_code == 503, answer.text
        assert evm.balance(address_of(wallet)) == before
        again = await http.post("/v1/sandboxes", json={})
        assert again.status_code == 201, again.text
        assert before - evm.balance(address_of(wallet)) == int(again.json()["payment"]["amount"])


async def test_a_sandbox_that_others_may_have_already_is_not_sold(
    served: Served, evm: Anvil, wallet: str
) -> None:
    before = evm.balance(address_of(wallet))
    async with agent(served, wallet) as http:
        body = {"scope": "session", "consumer": {"session_id": "s-1"}}
        answer = await http.post("/v1/sandboxes", json=body)
    assert answer.status_code == 422, answer.text
    assert "Invalid scope" in answer.json()["detail"]
    assert evm.balance(address_of(wallet)) == before


async def test_a_retry_with_the_same_key_is_answered_before_a_new_payment_is_looked_at(
    served: Served, evm: Anvil, wallet: str
) -> None:
    once = {"Idempotency-Key": "order-1"}
    async with agent(served, wallet) as http:
        first = await http.post("/v1/sandboxes", json={}, headers=once)
        spent = evm.balance(address_of(wallet))
        again = await http.post("/v1/sandboxes", json={}, headers=once)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["idempotent-replayed"] == "true"
    assert evm.balance(address_of(wallet)) == spent
    assert again.json()["key"] is None
    assert first.json()["key"]["secret_key"] not in again.text


async def test_the_same_payment_again_is_the_same_sandbox(served: Served, evm: Anvil, wallet: str) -> None:
    header = await signed(served, wallet, "/v1/sandboxes", {})
    first = await served.client.http.post("/v1/sandboxes", json={}, headers=header)
    again = await served.client.http.post("/v1/sandboxes", json={}, headers=header)
    assert again.json()["id"] == first.json()["id"]
    assert again.json()["key"] is None
    other = await served.client.http.post("/v1/sandboxes", json={"name": "other"}, headers=header)
    assert other.status_code == 409


async def test_a_payment_copied_from_the_chain_gives_nobody_a_key(served: Served, wallet: str) -> None:
    """We died between the broadcast and the answer: from then on the payment proves nothing."""
    body = b'{"sats":1000}'
    header = await signed(served, wallet, "/v1/topups", {"sats": 1000})
    x402 = served.platform.payments.x402
    assert x402 is not None
    presented = x402.checkout.present([(b"payment-signature", header["payment-signature"].encode())])
    assert presented is not None
    wanted = Wanted(
        purpose=Purpose.TOPUP,
        least_sats=1000,
        account=None,
        request_hash=hashlib.sha256(b"POST /v1/topups\n" + body).hexdigest() + ":",
        details={},
    )
    async with x402.checkout.take(presented, wanted) as taken:
        paid = await x402.checkout.settle(taken.payment)
    asking = {"content-type": "application/json", **header}
    copied = await served.client.http.post("/v1/topups", content=body, headers=asking)
    assert copied.status_code == 201, copied.text
    assert copied.json()["payment"]["id"] == paid.id
    assert copied.json()["key"] is None
    async with agent(served, wallet) as http:
        anew = await http.post("/v1/topups", json={"sats": 1000})
    assert anew.json()["key"]["account"] == paid.account


async def test_version_1_headers_are_read(served: Served, evm: Anvil, wallet: str) -> None:
    asked = await served.client.http.post("/v1/topups", json={"sats": 1000})
    payload = await paying_client(wallet).create_payment_payload(
        decode_payment_required_header(asked.headers["payment-required"])
    )
    first = {
        "x402Version": 1,
        "scheme": "exact",
        "network": evm.network,
        "payload": payload.model_dump(by_alias=True)["payload"],
    }
    header = {"X-PAYMENT": base64.b64encode(json.dumps(first).encode()).decode()}
    answer = await served.client.http.post("/v1/topups", json={"sats": 1000}, headers=header)
    assert answer.status_code == 201, answer.text
    assert answer.json()["payment"]["sats"] == 1000


async def test_a_refused_payment_is_answered_with_new_offers(served: Served, evm: Anvil) -> None:
    async with agent(served, evm.new_wallet()) as http:
        answer = await http.post("/v1/topups", json={"sats": 1000})
    assert answer.status_code == 402
    assert answer.json()["code"] == "payment_refused"
    assert "payment-required" in answer.headers


async def test_where_nothing_is_set_up_a_payment_is_refused_in_words(tmp_path: Path) -> None:
    settings = Settings(state_dir=tmp_path / "state", host="127.0.0.1", port=0, charging=True)
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        answer = await served.client.http.post("/v1/topups", json={"sats": 1000})
        assert answer.status_code == 422
        assert answer.json()["code"] == "not_available"
        assert (await served.client.http.post("/v1/sandboxes", json={})).status_code == 402
        assert (await served.client.http.get("/.well-known/x402")).json()["networks"] == []


async def test_a_purchase_that_a_second_backend_delivers_is_paid_once(
    evm: Anvil, tmp_path: Path, wallet: str
) -> None:
    routing = {"fallback": {"profile.agent-dev": ["ext.second"]}}
    broken = Scripted(name="ext.namespaces", fail_on={"provision": [ProvisionFailed(step="boot", why="no")]})
    backends: dict[str, Backend] = {"ext.namespaces": broken, "ext.second": Scripted(name="ext.second")}
    settings = settings_with(evm, tmp_path).model_copy(update={"routing": routing})
    before = evm.balance(SHOP)
    async with serving(settings, backends) as served, agent(served, wallet) as http:
        answer = await http.post("/v1/sandboxes", json={})
        assert answer.status_code == 201, answer.text
        made = answer.json()

        assert made["backend"] == "ext.second"
        assert [one["made"] for one in made["route"]["attempts"]] == [False, True]
        assert evm.balance(SHOP) - before == int(made["payment"]["amount"]) > 0
        account = made["key"]["account"]
        holds = await served.platform.store.read(lambda conn: open_holds(conn, account))
        assert holds == []
        assert (await served.platform.store.read(verify)).is_whole
