"""402 means funding needed, never "who are you": strangers on payable routes, and callers without credit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from sandboxer.accounts.records import Offer, Payable
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from sandboxer.wire.operations.declaration import Access
from sandboxer.wire.operations.table import OPERATIONS
from tests.support.http.served import Served, serving
from tests.support.http.wallets import sign_in

TTL = "/v1/sandboxes/sbx_00000000000000000000000000/ttl"


@pytest.fixture
async def charging(settings: Settings) -> AsyncIterator[Served]:
    paid = settings.model_copy(update={"charging": True})
    async with serving(paid, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        yield served


async def test_a_stranger_is_told_the_price_of_what_it_asked_for_and_how_to_sign_in(charging: Served) -> None:
    answer = await charging.client.http.post("/v1/sandboxes", json={"ttl": "1h"})
    assert answer.status_code == 402, answer.text
    body = answer.json()
    assert body["code"] == "payment_needed"
    assert body["pricing"] == "/v1/pricing"
    assert set(body["sign_in"]) == {"api_key", "session", "sign_in_with_x"}
    assert body["quote"]["duration_s"] == 3600
    assert body["sats"] == body["quote"]["sats"] > body["least_sats"] > 0
    assert "www-authenticate" not in answer.headers
    asked = {"profile": body["quote"]["profile"], "duration": "1h"}
    quoted = (await charging.client.post("/v1/quotes", asked)).json()
    assert quoted["sats"] == body["sats"]
    assert charging.backend.boxes == {}


async def test_every_payable_route_asks_a_stranger_for_money(charging: Served) -> None:
    routes = {("POST", "/v1/sandboxes"): {}, ("PATCH", TTL): {"duration": "1h"}}
    # Top-ups and tiers need a way to pay; they are asked for in test_x402.
    assert len(routes) + 2 == sum(1 for one in OPERATIONS if one.access is Access.PAYABLE)
    for (method, path), body in routes.items():
        answer = await charging.client.http.request(method, path, json=body)
        assert answer.status_code == 402, (path, answer.text)
        assert answer.json()["pricing"] == "/v1/pricing"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/sandboxes", {"ttl": "for ever"}),
        ("POST", "/v1/sandboxes", {"profile": "profile.none"}),
        ("POST", "/v1/sandboxes", {"image": "nope"}),
        ("POST", "/v1/sandboxes", {"resources": {"vcpus": 200}}),
        ("POST", "/v1/sandboxes", {"no_such_field": 1}),
        ("PATCH", TTL, {"duration": ""}),
        ("PATCH", TTL, {}),
    ],
)
async def test_nobody_is_asked_to_pay_for_what_makes_no_sense(
    charging: Served, method: str, path: str, body: dict[str, object]
) -> None:
    answer = await charging.client.http.request(method, path, json=body)
    assert answer.status_code == 422, answer.text


async def test_a_stranger_learns_nothing_of_sandboxes(charging: Served) -> None:
    path = await charging.sandbox()
    there = await charging.client.http.patch(f"{path}/ttl", json={"duration": "1h"})
    guessed = await charging.client.http.patch(TTL, json={"duration": "1h"})
    assert there.status_code == guessed.status_code == 402
    answer, other = there.json(), guessed.json()
    answer.pop("request_id")
    other.pop("request_id")
    assert answer == other


@pytest.mark.parametrize(
    "head",
    [
        {"authorization": "Bearer sbx-pk-00000000000000000000000000"},
        {"authorization": "Bearer v4.local.AAAA"},
        {"authorization": "nonsense"},
        {"x-api-key": "sbx-pk-00000000000000000000000000"},
        {"sign-in-with-x": "e30="},
        {"x-signature": "0" * 64},
    ],
)
async def test_bad_credentials_stay_401(charging: Served, head: dict[str, str]) -> None:
    answer = await charging.client.http.post("/v1/sandboxes", json={}, headers=head)
    assert answer.status_code == 401, answer.text
    assert "pricing" not in answer.json()


async def test_where_nothing_costs_anything_a_stranger_is_asked_who_it_is(settings: Settings) -> None:
    free = settings.model_copy(update={"charging": False})
    async with serving(free, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        answer = await served.client.http.post("/v1/sandboxes", json={})
        assert (answer.status_code, answer.json()["reason"]) == (401, "missing")
        # Other routes are not for sale at all.
        assert (await served.client.http.get("/v1/sandboxes")).status_code == 401


async def test_what_a_stranger_sends_is_bounded(charging: Served) -> None:
    answer = await charging.client.http.post("/v1/sandboxes", json={"env": {"A": "x" * 70_000}})
    assert answer.status_code == 413


class Selling:
    """Stands in for the payments package."""

    def __init__(self) -> None:
        self.asked: list[Payable] = []

    async def offer(self, wanted: Payable) -> Offer:
        self.asked.append(wanted)
        return Offer(
            facts={"accepts": [{"scheme": "exact", "sats": wanted.sats}]},
            headers={"payment-required": "eyJ4NDAyVmVyc2lvbiI6Mn0="},
        )


async def test_ways_to_pay_are_added_for_strangers_and_for_callers_short_of_credit(charging: Served) -> None:
    selling = Selling()
    charging.app.state.platform = replace(charging.platform, payment_offers=selling)
    stranger = await charging.client.http.post("/v1/sandboxes", json={})
    assert stranger.status_code == 402
    session = await sign_in(charging.client.http, "poor")
    known = await session.send("POST", "/v1/sandboxes", {})
    assert (known.status_code, known.json()["code"]) == (402, "insufficient_credit")
    for answer in (stranger, known):
        assert answer.json()["accepts"][0]["scheme"] == "exact"
        assert answer.headers["payment-required"] == "eyJ4NDAyVmVyc2lvbiI6Mn0="
    assert [asked.account for asked in selling.asked] == [None, session.account]
    assert known.json()["required"] > known.json()["available"] == 0
