"""What other programs are told in their own forms: a State Hub of every change of state, a fin-hub of what
each ended sandbox cost; registries of capabilities, and callers who ask by which ways to come in.
"""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction

import pytest

from sandboxer.access.ssh import Gateway
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.sandboxes.hub_feeds import dollars_of
from sandboxer.settings import Settings
from tests.observe.webhooks.receivers import Receiver, receiver
from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually, serving

CONSUMER = {"actor": "atm", "harness": "wise-validator", "run_id": "r-4"}


def bodies(there: Receiver) -> list[dict[str, object]]:
    return [json.loads(one.body) for one in there.got]


def base_of(there: Receiver) -> str:
    return there.url.rpartition("/")[0] if there.url.count("/") > 2 else there.url


async def test_a_configured_state_hub_hears_of_every_change_in_its_own_form(settings: Settings) -> None:
    async with receiver() as there:
        told = settings.model_copy(update={"webhook_allow_private": True, "state_hub_url": base_of(there)})
        async with serving(told, {"ext.namespaces": Scripted(name="ext.namespaces")}) as hub:
            path = await hub.sandbox(consumer=CONSUMER, ttl="2h")
            await hub.client.delete(path)
            await eventually(lambda: any("state:destroyed" in str(one["summary"]) for one in bodies(there)))
            seen = bodies(there)
            assert [one["event_type"] for one in seen[:2]] == ["note", "milestone"]
            assert [str(one["summary"]).rpartition(":")[2] for one in seen] == [
                "requested",
                "provisioning",
                "ready",
                "destroying",
                "destroyed",
            ]
            for one in seen:
                assert set(one) == {"summary", "event_type", "author", "detail"}
                detail = one["detail"]
                assert isinstance(detail, dict)
                assert detail["sandbox_id"] in path
                assert detail["profile_id"] == "profile.agent-dev"
                assert detail["consumer"] == CONSUMER
                assert detail["ttl"] == "2h"
        # Started again it hears once, as before.
        async with serving(told, {"ext.namespaces": Scripted(name="ext.namespaces")}) as again:
            listed = (await again.client.get("/v1/webhooks")).json()["webhooks"]
            assert [one["kinds"] for one in listed] == [["hub.progress"]]
            assert listed[0]["all_accounts"]


async def test_a_webhook_that_hears_of_everything_hears_nothing_twice(settings: Settings) -> None:
    private = settings.model_copy(update={"webhook_allow_private": True})
    scripted = Scripted(name="ext.namespaces")
    async with receiver() as there, serving(private, {"ext.namespaces": scripted}) as hub:
        answer = await hub.client.post("/v1/webhooks", {"url": there.url, "kinds": ["*", "hub.*"]})
        assert answer.status_code == 201, answer.text
        path = await hub.sandbox()
        await hub.client.delete(path)
        await eventually(lambda: any(one.get("type") == "sandbox.destroyed" for one in bodies(there)))
        assert all(str(one["type"]).partition(".")[0] in ("sandbox", "webhook") for one in bodies(there))


async def test_a_fin_hub_hears_what_an_ended_sandbox_cost(settings: Settings) -> None:
    async with receiver() as there:
        rates = {"BTC": "100000"}
        update = {"webhook_allow_private": True, "fin_hub_url": base_of(there), "fixed_rates": rates}
        told = settings.model_copy(update=update)
        async with serving(told, {"ext.namespaces": Scripted(name="ext.namespaces")}) as hub:
            path = await hub.sandbox(consumer=CONSUMER)
            await hub.client.delete(path)
            await eventually(lambda: bool(there.got))
            [said] = bodies(there)
            assert str(said["sandbox_id"]) in path
            assert said["extension_id"] == "ext.namespaces"
            assert said["consumer"] == CONSUMER
            # Nothing is charged here.
            assert (said["actual_usd"], said["actual_nsats"]) == ("0.00000000000000000", 0)
            assert isinstance(said["duration_s"], float)


@flow("listUsageOfSandboxes")
async def test_a_fin_hub_that_asks_gets_what_one_that_listens_is_told(settings: Settings) -> None:
    async with receiver() as there:
        update = {"webhook_allow_private": True, "fin_hub_url": base_of(there), "charging": True}
        told = settings.model_copy(update={**update, "fixed_rates": {"BTC": "100000"}})
        async with serving(told, {"ext.namespaces": Scripted(name="ext.namespaces")}) as hub:
            client = await hub.stranger()
            await hub.client.post("/v1/accounts/stranger/adjust", {"sats": 10_000, "id": "a", "reason": "r"})
            for _ in range(2):
                made = (await client.post("/v1/sandboxes", {"consumer": CONSUMER})).json()
                await client.delete(f"/v1/sandboxes/{made['id']}")
            await eventually(lambda: len(there.got) == 2)
            page = (await hub.client.get("/v1/usage/sandboxes?all_accounts=true&limit=1")).json()
            rest = await hub.client.get(f"/v1/usage/sandboxes?all_accounts=true&after={page['next_after']}")
            pulled = page["sandboxes"] + rest.json()["sandboxes"]
            assert [{name: one[name] for name in one if name != "id"} for one in pulled] == bodies(there)
            # A create costs something by itself, however short its life.
            assert pulled[0]["actual_nsats"] > 0
            exact = Fraction(pulled[0]["actual_nsats"]) * 100_000 / 10**17
            assert Fraction(pulled[0]["actual_usd"]) == exact
            assert (await client.get("/v1/usage/sandboxes")).json()["sandboxes"] == pulled
            assert (await client.get("/v1/usage/sandboxes?all_accounts=true")).status_code == 403
            end = rest.json()["next_after"]
            again = await hub.client.get(f"/v1/usage/sandboxes?all_accounts=true&after={end}")
            assert again.json() == {"sandboxes": [], "next_after": end}


@pytest.mark.parametrize(
    ("nsats", "rate", "dollars"),
    [
        (1, "100000", "0.00000000000100000"),
        (10**17, "1", "1.00000000000000000"),
        (123_456_789_012_345_678, "99999.99", "123456.7766666667767654322"),
    ],
)
def test_dollars_are_exact_to_the_last_digit(nsats: int, rate: str, dollars: str) -> None:
    said = dollars_of(nsats, Decimal(rate))
    assert Fraction(said) == Fraction(nsats) * Fraction(rate) / 10**17
    assert Decimal(said) == Decimal(dollars)


async def test_every_way_to_a_sandbox_is_named_with_its_address(served: Served) -> None:
    path = await served.sandbox()
    ways = (await served.client.get(f"{path}/reachability")).json()
    url = served.platform.settings.url
    assert ways["ssh"] is None
    assert ways["remote_dir"] == "/workspace"
    assert ways["poll"] == f"{url}{path}"
    assert ways["events"] == f"{url}{path}/events"
    assert ways["webhook"] == f"{url}/v1/webhooks"
    assert ways["tunnel"] == f"{url}{path}/previews"
    assert ways["identity"] == f"{url}/v1/ssh-keys"
    served.platform.access.ssh.gateway = Gateway("box.example.com", 2222, "ssh-ed25519 AAAA", "SHA256:x")
    ways = (await served.client.get(f"{path}/reachability")).json()
    assert ways["ssh"] == f"ssh://{path.rpartition('/')[2]}@box.example.com:2222"


async def test_the_capability_is_published_under_the_name_that_others_look_for(served: Served) -> None:
    found = (await served.client.get("/v1/capabilities")).json()["provides"]
    assert [one["id"] for one in found] == ["capability.execution.sandbox-provision"]
    assert "profile.agent-dev" in found[0]["profiles"]
    assert "profile.compose-e2e" not in found[0]["profiles"]
