"""unsandbox's words on a platform of sandboxes in memory: what is asked, refused, and said back."""

from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from sandboxer.edges.unsandbox.services import port_of, variables
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.unsandbox import ROOT
from tests.support.platforms import Up
from tests.support.unsandbox import Client, Key


def test_a_key_is_told_its_tier_and_its_limits(client: Client) -> None:
    seen = client.ask("POST", "/keys/validate")
    assert (seen["valid"], seen["status"], seen["tier_level"]) == (True, "active", 0)
    assert seen["rate_per_minute"] == seen["rate_limit"] > 0
    paced = client.ask("POST", "/keys/am-i-throttled", {})
    assert paced["should_throttle"] is False
    assert paced["requests_used_in_last_60s"] > 0
    assert paced["active_executions"] == 0


def test_languages_are_names_with_their_aliases(client: Client) -> None:
    seen = client.ask("GET", "/languages")
    assert seen["count"] == len(seen["languages"])
    assert set(seen["aliases"].values()) <= set(seen["languages"])
    assert client.ask("GET", "/shells")["count"] >= 0


@pytest.mark.parametrize("noun", ["sessions", "services", "snapshots", "images", "jobs", "pools"])
def test_a_list_of_nothing_is_an_empty_one_with_a_count(client: Client, noun: str) -> None:
    seen = client.ask("GET", f"/{noun}")
    assert (seen[noun], seen["count"]) == ([], 0)


def test_images_are_listed_by_whose_they_are(client: Client) -> None:
    for path in ("/images/owned", "/images/shared", "/images/public", "/images?filter=owned"):
        assert client.ask("GET", path)["images"] == []
    assert client.send("GET", "/images?filter=nobody").status_code == 422


def test_the_platform_is_told_about_as_theirs_is(client: Client) -> None:
    seen = client.ask("GET", "/cluster")
    assert seen["mode"] in ("pooled", "on_demand")
    assert {"pool_size", "available", "allocated", "spawning"} <= set(seen)
    assert client.ask("GET", "/stats")["of"] == "account"


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/execute", {"code": "1", "language": "python", "network_mode": "open"}, "network_mode"),
        ("/execute", {"code": "1", "language": "python", "ttl": 901}, "ttl"),
        ("/execute", {"code": "1", "language": "klingon"}, "language"),
        ("/execute", {"code": "1", "language": "python", "return_wasm_artifact": True}, "return_wasm"),
        ("/sessions", {"language": "c"}, "language"),
        ("/services", {"name": "a", "service_type": "minecraft"}, "service_type"),
        ("/services", {"name": "a", "ports": [80, 8080]}, "ports"),
        ("/services", {"name": "a", "bootstrap": "https://example.org/x.sh"}, "bootstrap"),
        ("/services", {"name": "a", "input_files": [{"filename": "a", "content": "%"}]}, "input_files"),
        ("/snapshots", {}, "source"),
        ("/api/gift-cards/redeem", {"code": "a-b-c-d"}, "tier_level"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(
    client: Client, path: str, body: dict[str, object], field: str
) -> None:
    refused = client.send("POST", path, body)
    assert refused.status_code in (400, 404, 422), refused.text
    assert field in refused.text


def test_what_is_not_here_at_all_says_so(client: Client) -> None:
    refused = client.send("POST", "/image", {"prompt": "a cat"})
    assert refused.status_code in (409, 422, 501)
    assert "pictures" in refused.json()["error"]


def test_variables_are_read_as_a_file_of_them_is_written() -> None:
    text = "# a comment\nA=1\nexport B = two words \nC='q'\nD=\"x=y\"\nnothing\n\nE=\n"
    assert variables(text) == {"A": "1", "B": "two words", "C": "q", "D": "x=y", "E": ""}


def test_a_service_has_one_port_with_tls_before_it() -> None:
    assert port_of([]) is None
    assert port_of([8080]) == 8080
    assert port_of([80, 443]) == 80
    with pytest.raises(InvalidRequest):
        port_of([80, 81])


def test_prices_are_told_by_tier_level_and_months(client: Client) -> None:
    quotes = client.ask("GET", "/pricing-for-agents.json")["quotes"]
    cards = client.ask("GET", "/api/gift-cards/pricing")["prices"]
    assert len(quotes) == len(cards) > 0
    assert {one["tier_level"] for one in cards} == set(range(1, 33))
    assert [one["cents"] for one in quotes] == [one["cents"] for one in cards]


def test_a_gift_card_is_redeemed_for_a_tier_level_and_a_key_that_signs(client: Client, up: Up) -> None:
    """Whoever has its four words gets a key by them, and needs no other."""
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        card = owner.gift_cards.create(5000, pay_with="operator", reason="a test")
    cheapest = min(client.ask("GET", "/api/gift-cards/pricing")["prices"], key=lambda one: int(one["cents"]))
    asked = {"code": card.code, "tier_level": cheapest["tier_level"], "months": cheapest["months"]}
    answer = httpx.post(f"{up.url}{ROOT}/api/gift-cards/redeem", json=asked, timeout=30, trust_env=False)
    assert answer.status_code == 200, answer.text
    done = answer.json()
    assert done["status"] == "redeemed"
    assert done["balance_cents"] == 5000 - cheapest["cents"]
    made = replace(client, key=Key(done["api_key"]["public_key"], done["api_key"]["secret_key"]))
    assert made.ask("POST", "/keys/validate")["tier_level"] == cheapest["tier_level"]
    path = f"/api/gift-cards/{done['id']}/status"
    seen = client.ask("GET", path)
    assert (seen["status"], seen["tier_level"]) == ("redeemed", cheapest["tier_level"])
    assert client.ask("GET", f"/api/gift-cards/{card.id}/status")["balance_cents"] == done["balance_cents"]
    # It is handed over once.
    assert client.send("GET", f"{path}?claim={done['claim']}").status_code == 409
