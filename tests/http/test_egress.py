"""Egress over HTTP: whose rules they are, what is refused of them, and how they are explained."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sandboxer.settings import Settings
from tests.support.http.flows import flow
from tests.support.http.served import Scripted, Served, serving
from tests.support.http.signed import Client, Credentials


async def semi(served: Served) -> str:
    return await served.sandbox(trust="semi") + "/egress"


async def put(served: Served, path: str, **policy: object) -> dict[str, object]:
    answer = await served.client.send("PUT", path, body=policy)
    assert answer.status_code == 200, answer.text
    body: dict[str, object] = answer.json()
    return body


@flow("getEgress", "changeEgress", "listEgressDenials")
async def test_a_new_sandbox_denies_everything_and_rules_are_added_and_taken_away(served: Served) -> None:
    path = await semi(served)
    first = (await served.client.get(path)).json()
    assert (first["default"], first["rules"], first["version"]) == ("deny", [], 1)
    rule = {"action": "allow", "host": "PyPI.org."}
    added = await served.client.send("PATCH", path, body={"add": [rule, rule]})
    assert [one["host"] for one in added.json()["rules"]] == ["pypi.org"]
    again = await served.client.send("PATCH", path, body={"add": [rule], "version": 2})
    assert len(again.json()["rules"]) == 1
    late = await served.client.send("PATCH", path, body={"add": [], "version": 2})
    assert late.status_code == 409
    gone = await served.client.send("PATCH", path, body={"remove": [rule]})
    assert gone.json()["rules"] == []
    assert (await served.client.get(f"{path}/denials")).json()["denials"] == []


async def test_a_profile_names_what_its_sandboxes_may_reach_at_first(served: Served) -> None:
    path = await served.sandbox(profile="profile.packages")
    assert (await served.client.get(path)).json()["trust"] == "semi"
    shown = (await served.client.get(f"{path}/egress")).json()
    assert shown["default"] == "deny"
    assert {"action": "allow", "host": "pypi.org"}.items() <= shown["rules"][0].items()
    answer = await served.client.post(f"{path}/egress/explain", {"url": "https://registry.npmjs.org/x"})
    assert answer.json()["rule"] == "allow *.npmjs.org"
    closed = await served.sandbox(profile="profile.packages", trust="zero")
    assert (await served.client.get(f"{closed}/egress")).status_code == 409


@flow("replaceEgress", "explainEgress")
async def test_a_decision_is_explained_with_its_rule(served: Served) -> None:
    path = await semi(served)
    await put(
        served,
        path,
        rules=[
            {"action": "allow", "host": "*.example.com"},
            {"action": "deny", "host": "bad.example.com"},
            {"action": "allow", "host": "api.test", "methods": ["POST"], "path": "/v1"},
        ],
    )

    async def explain(url: str, method: str = "GET") -> dict[str, object]:
        answer = await served.client.post(f"{path}/explain", {"url": url, "method": method})
        assert answer.status_code == 200, answer.text
        body: dict[str, object] = answer.json()
        return body

    assert (await explain("https://a.example.com/x"))["rule"] == "allow *.example.com"
    assert (await explain("https://bad.example.com/"))["reason"] == "denied_by_rule"
    assert (await explain("https://example.com/"))["reason"] == "no_rule"
    assert (await explain("https://a.example.com:22/"))["allowed"] is False
    opened = await explain("https://api.test/v1/x", "POST")
    assert (opened["allowed"], opened["tls_opened"]) == (True, True)
    assert (await explain("https://api.test/v1/x"))["allowed"] is False


@pytest.mark.parametrize(
    "rule",
    [
        {"action": "allow", "host": "10.0.0"},
        {"action": "allow", "host": "[::1]"},
        {"action": "allow", "host": "a.*.com"},
        {"action": "allow", "host": "a.com", "path": "/../x"},
        {"action": "allow", "host": "*", "methods": ["GET"]},
        {"action": "allow", "host": "a.com", "ports": [], "path": "/x"},
        {"action": "allow", "host": "a.com", "ports": [22], "path": "/x"},
    ],
)
async def test_a_rule_that_means_nothing_is_refused(served: Served, rule: dict[str, object]) -> None:
    path = await semi(served)
    answer = await served.client.send("PUT", path, body={"rules": [rule]})
    assert answer.status_code == 422, answer.text


async def test_rules_are_their_owners_alone(served: Served) -> None:
    path = await semi(served)
    stranger = await served.stranger()
    for method, where, body in (
        ("GET", path, None),
        ("PUT", path, {}),
        ("PATCH", path, {}),
        ("POST", f"{path}/explain", {"url": "https://a.com"}),
        ("GET", f"{path}/denials", None),
    ):
        answer = await stranger.send(method, where, body=body)
        assert answer.status_code == 404, (method, answer.text)


async def test_a_sandbox_of_trust_zero_has_no_rules(served: Served) -> None:
    path = await served.sandbox() + "/egress"
    answer = await served.client.get(path)
    assert answer.status_code == 409
    assert "no network" in answer.json()["detail"]


@flow("getAccountEgress", "replaceAccountEgress")
async def test_rules_of_the_account_hold_in_all_its_sandboxes(served: Served) -> None:
    path = await semi(served)
    await put(served, path, rules=[{"action": "allow", "host": "*.example.com"}])
    rules = [{"action": "deny", "host": "bad.example.com"}, {"action": "allow", "host": "pypi.org"}]
    answer = await served.client.send("PUT", "/v1/egress", body={"rules": rules})
    assert answer.status_code == 200, answer.text
    assert [one["host"] for one in answer.json()["rules"]] == ["bad.example.com", "pypi.org"]

    async def allowed(where: str, url: str) -> bool:
        answer = await served.client.post(f"{where}/explain", {"url": url})
        return bool(answer.json()["allowed"])

    for where in (path, await semi(served)):
        assert await allowed(where, "https://pypi.org/")
        assert not await allowed(where, "https://bad.example.com/")
    assert await allowed(path, "https://good.example.com/")
    stranger = await served.stranger()
    assert (await stranger.get("/v1/egress")).json()["rules"] == []


async def test_what_an_account_denies_is_denied_in_the_sandboxes_of_keys_cut_from_it(served: Served) -> None:
    scopes = ["sandboxes:create", "sandboxes:read", "keys:delegate", "account:manage"]
    child = served.as_(await cut(served.client, scopes, depth=1))
    grandchild = served.as_(await cut(child, scopes))
    made = await grandchild.post("/v1/sandboxes", {"profile": "profile.packages"})
    assert made.status_code == 201, made.text
    path = f"/v1/sandboxes/{made.json()['id']}/egress"

    async def allowed(url: str) -> bool:
        return bool((await grandchild.post(f"{path}/explain", {"url": url})).json()["allowed"])

    assert await allowed("https://pypi.org/")
    rules = [{"action": "deny", "host": "pypi.org"}, {"action": "allow", "host": "elsewhere.org"}]
    assert (await served.client.send("PUT", "/v1/egress", body={"rules": rules})).status_code == 200
    assert not await allowed("https://pypi.org/"), "at once, in what runs"
    more = {"add": [{"action": "allow", "host": "pypi.org"}]}
    assert (await grandchild.send("PATCH", path, body=more)).status_code == 200
    assert (await grandchild.send("PATCH", "/v1/egress", body=more)).status_code == 200
    assert not await allowed("https://pypi.org/"), "whatever is allowed below"
    assert not await allowed("https://elsewhere.org/"), "an allow is the account's own"
    again = await grandchild.post("/v1/sandboxes", {"profile": "profile.packages"})
    told = await grandchild.post(
        f"/v1/sandboxes/{again.json()['id']}/egress/explain", {"url": "https://pypi.org/"}
    )
    assert told.json()["allowed"] is False, "in what is made later"


async def test_a_key_that_may_not_open_a_network_has_none_by_an_open_profile_either(served: Served) -> None:
    scopes = ["sandboxes:create", "sandboxes:read", "exec"]
    child = served.as_(await cut(served.client, scopes))
    for path, asked in (
        ("/v1/sandboxes", {}),
        ("/v1/sandboxes", {"network": "open"}),
        ("/v1/execute", {"language": "python", "code": "1"}),
    ):
        answer = await child.post(path, {"profile": "profile.e2b", **asked})
        assert (answer.status_code, answer.json().get("scope")) == (403, "account:manage"), answer.text
    for narrow in ({"network": "none"}, {"trust": "zero"}, {"network": "packages"}):
        answer = await child.post("/v1/sandboxes", {"profile": "profile.e2b", **narrow})
        assert answer.status_code == 201, answer.text
    other = served.as_(await cut(served.client, [*scopes, "account:manage"]))
    for who in (other, served.client):
        answer = await who.post("/v1/sandboxes", {"profile": "profile.e2b"})
        assert answer.status_code == 201, answer.text


async def cut(parent: Client, scopes: list[str], depth: int = 0) -> Credentials:
    wish = {"name": "child", "budget_sats": 0, "scopes": scopes, "depth": depth}
    answer = await parent.post("/v1/keys/delegated", wish)
    assert answer.status_code == 201, answer.text
    return Credentials(answer.json()["public_key"], answer.json()["secret_key"])


@flow("changeAccountEgress", "explainAccountEgress")
async def test_rules_of_the_account_are_changed_by_version_and_explained(served: Served) -> None:
    rule = {"action": "allow", "host": "PyPI.org."}
    first = await served.client.send("PATCH", "/v1/egress", body={"add": [rule, rule], "version": 0})
    assert (first.json()["version"], [one["host"] for one in first.json()["rules"]]) == (1, ["pypi.org"])
    late = await served.client.send("PATCH", "/v1/egress", body={"add": [], "version": 0})
    assert late.status_code == 409, late.text
    answer = (await served.client.post("/v1/egress/explain", {"url": "https://pypi.org/"})).json()
    assert (answer["allowed"], answer["rule"]) == (True, "allow pypi.org")
    answer = (await served.client.post("/v1/egress/explain", {"url": "https://other.org/"})).json()
    assert (answer["allowed"], answer["reason"]) == (False, "no_rule")
    assert "whose own rules are about it" in answer["why"]
    gone = await served.client.send("PATCH", "/v1/egress", body={"remove": [rule]})
    assert (gone.json()["version"], gone.json()["rules"]) == (2, [])


async def test_a_change_of_the_accounts_rules_is_told_and_by_whom(served: Served) -> None:
    stranger = await served.stranger("careful")
    rule = {"action": "deny", "host": "pypi.org"}
    for _ in range(2):
        assert (await stranger.send("PUT", "/v1/egress", body={"rules": [rule]})).status_code == 200
    late = await stranger.send("PATCH", "/v1/egress", body={"add": [], "version": 0})
    assert late.status_code == 409
    told = [one.data async for one in stranger.events("GET", "/v1/accounts/me/events?follow=false")]
    changes = [one for one in told if one["kind"] == "account.egress_changed"]
    assert [one["data"]["version"] for one in changes] == [1, 2]
    assert {one["actor"] for one in changes} == {stranger.credentials.public_key}


async def test_an_operator_may_forbid_every_way_out(settings: Settings) -> None:
    strict = settings.model_copy(update={"trust_max": "zero"})
    async with serving(strict, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        refused = await served.client.post("/v1/sandboxes", {"trust": "semi"})
        assert refused.status_code == 403, refused.text
        assert "no sandbox here has a network" in refused.json()["detail"]
        assert "SANDBOXER_TRUST_MAX" in refused.json()["next_step"]
        assert (await served.client.get("/v1/sandboxes")).json()["sandboxes"] == []
        assert (await served.client.get("/v1/capabilities")).json()["trust_levels"] == ["zero"]
        await served.sandbox(trust="zero")


async def test_bytes_are_told_in_usage_and_when_it_is_destroyed(served: Served) -> None:
    path = await served.sandbox(trust="semi")
    outlet = served.platform.access.egress.outlets.outlet(path.rpartition("/")[2])
    assert outlet is not None
    outlet.count_sent(1234)
    outlet.count_received(99)
    used = (await served.client.get(f"{path}/usage")).json()
    assert (used["egress_sent_bytes"], used["egress_received_bytes"]) == (1234, 99)
    outlet.count_sent(1)
    gone = (await served.client.delete(path)).json()
    assert (gone["egress_sent_bytes"], gone["egress_received_bytes"]) == (1235, 99)


async def test_rules_that_change_while_a_sandbox_starts_hold_in_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    outlets = served.platform.access.egress.outlets
    store, loaded, may_go = outlets._store, asyncio.Event(), asyncio.Event()

    class Late:
        """The first answer comes late: it is what the rules were when it was asked."""

        async def read(self, act: Any) -> Any:
            answer = await store.read(act)
            if not loaded.is_set():
                loaded.set()
                await may_go.wait()
            return answer

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    async def is_written() -> bool:
        return bool((await served.client.get("/v1/egress")).json()["rules"])

    monkeypatch.setattr(outlets, "_store", Late())
    rules = [{"action": "allow", "host": "pypi.org"}]
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        starting = group.create_task(semi(served))
        await loaded.wait()
        changing = group.create_task(served.client.send("PUT", "/v1/egress", body={"rules": rules}))
        while not await is_written():
            await asyncio.wait((changing,), timeout=0.02)
        await asyncio.wait((changing,), timeout=0.5)
        may_go.set()
    body = await served.client.post(f"{starting.result()}/explain", {"url": "https://pypi.org/"})
    assert body.json()["allowed"], body.text
