"""From nothing to a key with sats, over HTTP, paid on a real Litecoin node."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from embit import bip32
from sqlalchemy import select

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from sandboxer.store.idempotency import abandon_all_in_flight, idempotency
from testchains.litecoin import Litecoin
from tests.support.http.flows import flow
from tests.support.http.served import Served, serving
from tests.support.http.signed import Credentials

RATES = {"BTC": "60000", "LTC": "80"}


@pytest.fixture
async def shop(litecoin: Litecoin, tmp_path: Path) -> AsyncIterator[Served]:
    (tmp_path / "password").write_text(litecoin.password)
    xpub = bip32.HDKey.from_seed(str(tmp_path).encode().ljust(64)[-64:]).derive("m/84h/1h/0h").to_public()
    settings = Settings(
        state_dir=tmp_path,
        port=0,
        chains={
            "LTC": {
                "rpc": litecoin.url,
                "network": "regtest",
                "user": litecoin.user,
                "password_file": str(tmp_path / "password"),
                "xpub": xpub.to_base58(),
            }
        },
        fixed_rates=RATES,
        invoices={"poll_s": 0.1, "open_per_address": 5},
        limit_auth=1000,
    )
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        yield served


async def ask(served: Served, **wanted: object) -> httpx.Response:
    body = {"currency": "LTC", **wanted}
    return await served.client.http.post("/v1/invoices", json=body)


async def until(served: Served, id: str, state: str) -> dict[str, Any]:
    deadline = time.monotonic() + 20
    while True:
        seen = (await served.client.http.get(f"/v1/invoices/{id}")).json()
        if seen["state"] == state:
            return dict(seen)
        assert time.monotonic() < deadline, seen
        await asyncio.sleep(0.05)


async def test_an_invoice_asked_for_again_is_the_same_invoice(
    shop: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shop.stranger("known")
    public_id = (await shop.client.get("/v1/accounts/known")).json()["account"]["public_id"]
    body = {"currency": "LTC", "sats": 5000, "account": public_id}
    head = {"idempotency-key": "inv-1"}

    def die(*_: object, **__: object) -> None:
        raise RuntimeError("the server died here")

    with monkeypatch.context() as dying:
        dying.setattr("sandboxer.store.idempotency.finish", die)
        assert (await shop.client.http.post("/v1/invoices", json=body, headers=head)).status_code == 500
    # As at the next start.
    await shop.platform.store.write(abandon_all_in_flight)
    answers = [await shop.client.http.post("/v1/invoices", json=body, headers=head) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201], answers[0].text
    assert answers[0].json()["address"] == answers[1].json()["address"]
    assert len((await shop.client.get("/v1/invoices")).json()["invoices"]) == 1
    # With a claim in it the answer is not kept, and the repeat says so: another stranger behind the same
    # address may have chosen the same words.
    new = {"currency": "LTC", "sats": 5000}
    fresh = [
        await shop.client.http.post("/v1/invoices", json=new, headers={"idempotency-key": "inv-2"})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in fresh] == [201, 409]


async def test_a_stranger_who_repeats_an_unguessable_key_gets_the_same_invoice_and_claim(
    shop: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise RuntimeError("the server died here")

    async def repeat(key: str, **body: Any) -> httpx.Response:
        wanted = {"currency": "LTC", "sats": 5000, **body}
        return await shop.client.http.post("/v1/invoices", json=wanted, headers={"idempotency-key": key})

    key = str(uuid4())
    with monkeypatch.context() as dying:
        dying.setattr("sandboxer.store.idempotency.finish", die)
        assert (await repeat(key)).status_code == 500
    await shop.platform.store.write(abandon_all_in_flight)
    recalled, replayed = await repeat(key), await repeat(key)
    assert (recalled.status_code, replayed.status_code) == (201, 201), replayed.text
    assert recalled.json()["claim"]
    assert replayed.json() == recalled.json()
    assert replayed.headers["location"] == recalled.headers["location"]
    assert len((await shop.client.get("/v1/invoices")).json()["invoices"]) == 1
    # The claim is nowhere in the database, and follows from no other key.
    query = select(idempotency).where(idempotency.c.key == key)
    (row,) = await shop.platform.store.read(lambda conn: conn.execute(query).all())
    assert recalled.json()["claim"].encode() not in row.body
    assert (await repeat(str(uuid4()))).json()["claim"] != recalled.json()["claim"]
    assert (await repeat(key, sats=6000)).status_code == 409


@flow("createInvoice", "getInvoice")
async def test_an_agent_with_nothing_but_coins_gets_a_key_with_sats(shop: Served, litecoin: Litecoin) -> None:
    answer = await ask(shop, sats=1_000_000)
    assert answer.status_code == 201, answer.text
    bill = answer.json()
    assert (bill["amount"], bill["atomic"], bill["poll_after_s"]) == ("7.5", "750000000", 14)
    assert answer.headers["location"] == f"/v1/invoices/{bill['id']}"
    litecoin.pay(bill["address"], int(bill["atomic"]))
    await until(shop, bill["id"], "seen")
    litecoin.mine(6)
    paid = await until(shop, bill["id"], "paid")
    assert "claim" not in paid
    assert paid["payments"][0]["sats"] == 1_000_000
    path = f"/v1/keys/{paid['public_key']}/reveal"
    revealed = await shop.client.http.post(path, json={"claim": bill["claim"]})
    assert revealed.status_code == 200, revealed.text
    again = await shop.client.http.post(path, json={"claim": bill["claim"]})
    assert again.status_code == 409
    key = revealed.json()
    me = await shop.as_(Credentials(key["public_key"], key["secret_key"])).get("/v1/accounts/me")
    assert me.json()["money"]["balance"] == 1_000_000


@flow("followInvoice")
async def test_a_stream_tells_every_step_and_ends_when_it_is_paid(shop: Served, litecoin: Litecoin) -> None:
    bill = (await ask(shop, tier=1, months=1)).json()
    states: list[str] = []

    async def follow() -> None:
        async with shop.client.http.stream("GET", f"/v1/invoices/{bill['id']}/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    states.append(json.loads(line[6:])["state"])

    async with asyncio.timeout(30), asyncio.TaskGroup() as group:
        following = group.create_task(follow())
        litecoin.pay(bill["address"], int(bill["atomic"]))
        await until(shop, bill["id"], "seen")
        for _ in range(6):
            litecoin.mine()
        await following
    assert states[0] == "awaiting"
    assert "seen" in states
    assert states[-1] == "paid"


@flow("drawInvoice")
async def test_a_picture_of_the_payment_is_drawn(shop: Served) -> None:
    bill = (await ask(shop, sats=5000)).json()
    answer = await shop.client.http.get(f"/v1/invoices/{bill['id']}/qr.svg")
    assert answer.headers["content-type"].startswith("image/svg+xml")
    assert answer.text.startswith("<svg")


@pytest.mark.parametrize(
    ("wanted", "status", "field"),
    [
        ({}, 422, "tier"),
        ({"tier": 1}, 422, "tier"),
        ({"tier": 1, "months": 2}, 422, "months"),
        ({"tier": 1, "months": 1, "sats": 5000}, 422, "tier"),
        ({"sats": 1}, 422, "sats"),
        ({"sats": 5000, "refund_address": "rltc1qqqqqqqqqqqqqqqq"}, 422, None),
        ({"sats": 5000, "currency": "XMR"}, 422, None),
        ({"sats": 5000, "currency": "EUR"}, 422, "currency"),
        ({"sats": 5000, "account": "pub_" + "0" * 26}, 404, None),
    ],
)
async def test_what_cannot_be_is_refused_before_an_address_is_spent(
    shop: Served, wanted: dict[str, object], status: int, field: str | None
) -> None:
    answer = await ask(shop, **wanted)
    assert answer.status_code == status, answer.text
    assert field is None or answer.json()["field"] == field
    good = (await ask(shop, sats=5000)).json()
    seen = await shop.platform.payments.invoices.view(good["id"])
    assert seen.invoice.index == 0


async def test_one_address_may_only_have_so_many_open(shop: Served) -> None:
    for _ in range(5):
        assert (await ask(shop, sats=5000)).status_code == 201
    refused = await ask(shop, sats=5000)
    assert refused.status_code == 429
    assert "retry-after" in refused.headers


async def test_an_id_that_is_not_known_is_not_found_and_lists_are_the_owners(shop: Served) -> None:
    assert (await shop.client.http.get("/v1/invoices/inv_" + "0" * 26)).status_code == 404
    stranger = await shop.stranger()
    for path in ("/v1/invoices", "/v1/refunds"):
        assert (await stranger.get(path)).status_code == 403
        assert (await shop.client.http.get(path)).status_code == 401
        assert (await shop.client.get(path)).status_code == 200


@flow("listInvoices")
async def test_the_owner_lists_pages_of_invoices(shop: Served) -> None:
    ids = [(await ask(shop, sats=5000 + n)).json()["id"] for n in range(3)]
    first = (await shop.client.get("/v1/invoices?limit=2&state=awaiting")).json()
    assert [one["id"] for one in first["invoices"]] == [ids[2], ids[1]]
    rest = (await shop.client.get(f"/v1/invoices?limit=2&cursor={first['next_cursor']}")).json()
    assert [one["id"] for one in rest["invoices"]] == [ids[0]]
    assert rest["next_cursor"] is None


@flow("listRefunds", "markRefundSent", "lookAtInvoice")
async def test_the_operator_sends_a_refund_and_says_so(shop: Served, litecoin: Litecoin) -> None:
    home = litecoin.call("getnewaddress")
    bill = (await ask(shop, tier=1, months=1, refund_address=home)).json()
    await _expire(shop, bill["id"])
    assert (await shop.client.post(f"/v1/invoices/{bill['id']}/look", {})).status_code == 200
    await until(shop, bill["id"], "expired")
    litecoin.pay(bill["address"], int(bill["atomic"]))
    litecoin.mine(6)
    # An ended invoice is looked at seldom; whoever runs the place may not want to wait.
    assert (await shop.client.post(f"/v1/invoices/{bill['id']}/look", {})).status_code == 200
    seen = await until(shop, bill["id"], "refund_due")
    (due,) = (await shop.client.get("/v1/refunds?state=queued")).json()["refunds"]
    assert due["id"] == seen["refunds"][0]["id"]
    assert int(due["amount_atomic"]) == int(bill["atomic"]) * 91 // 100
    txid = litecoin.pay(home, int(due["amount_atomic"]))
    sent = await shop.client.post(f"/v1/refunds/{due['id']}/sent", {"txid": txid})
    assert sent.status_code == 200, sent.text
    await until(shop, bill["id"], "refunded")
    other = await shop.client.post(f"/v1/refunds/{due['id']}/sent", {"txid": "00" * 32})
    assert other.status_code == 409


@flow("listRates")
async def test_rates_are_for_anyone_to_read(shop: Served) -> None:
    found = (await shop.client.http.get("/v1/rates")).json()["rates"]
    assert {line["asset"]: line["usd"] for line in found} == RATES | {"SBTC": "60000"}


async def _expire(served: Served, id: str) -> None:
    """As if the hour were over: no test waits for one."""
    from sqlalchemy import update  # noqa: PLC0415

    from sandboxer.payments.tables import invoices  # noqa: PLC0415

    past = served.platform.clock.now().replace(year=2020)
    await served.platform.store.write(
        lambda conn: (
            conn.execute(update(invoices).where(invoices.c.id == id).values(expires_at=past)).rowcount
        )
    )
