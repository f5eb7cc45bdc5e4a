"""Sandboxes over HTTP: their life, as a client sees it."""

from __future__ import annotations

import pytest

from tests.support.http.flows import flow
from tests.support.http.served import Served
from tests.support.http.signed import target


@flow("createSandbox", "getSandbox", "listSandboxes", "destroySandbox")
async def test_a_sandbox_is_made_looked_at_listed_and_removed(served: Served) -> None:
    answer = await served.client.post("/v1/sandboxes", {"name": "first", "labels": {"team": "a"}})
    assert answer.status_code == 201, answer.text
    made = answer.json()
    assert made["id"].startswith("sbx_")
    assert made["state"] == "ready"
    assert made["backend"] == "ext.namespaces"
    assert made["trust"] == "zero"
    assert made["ready_at"] is not None
    assert made["expires_at"] is not None
    assert made["timings_ms"]
    assert answer.headers["location"] == f"/v1/sandboxes/{made['id']}"
    path = answer.headers["location"]
    assert (await served.client.get(path)).json()["name"] == "first"
    listed = (await served.client.get(target("/v1/sandboxes", label="team=a"))).json()
    assert [s["id"] for s in listed["sandboxes"]] == [made["id"]]
    gone = await served.client.delete(path)
    assert gone.status_code == 200
    assert gone.json()["state"] == "destroyed"
    assert (await served.client.delete(path)).status_code == 200


async def test_who_deletes_is_told_what_was_removed_and_what_is_left(served: Served) -> None:
    made = await served.client.post("/v1/volumes", {"name": "data", "size_mb": 16})
    volume = made.json()["id"]
    path = await served.sandbox(volumes=[{"volume": volume, "path": "/data"}])
    cleanup = {"removed": ["processes", "disk"], "left": [volume]}
    assert (await served.client.delete(path)).json()["cleanup"] == cleanup
    # However often it is asked, and to whoever follows.
    assert (await served.client.delete(path)).json()["cleanup"] == cleanup
    events = await served.client.get(f"{path}/events?follow=false")
    assert f'"left":["{volume}"]' in events.text.replace(" ", "")


@flow("getSandboxTree")
async def test_the_tree_of_an_account_without_grants_is_what_it_made(served: Served) -> None:
    path = await served.sandbox(name="alone")
    other = await served.stranger()
    found = (await served.client.get("/v1/tree")).json()["sandboxes"]
    assert [(one["id"], one["depth"], one["spent_sats"]) for one in found] == [
        (path.rpartition("/")[2], 0, None)
    ]
    assert (await other.get("/v1/tree")).json() == {"sandboxes": []}


async def test_without_waiting_a_sandbox_is_returned_before_it_is_ready(served: Served) -> None:
    answer = await served.client.post("/v1/sandboxes?wait=false", {})
    assert answer.status_code == 201
    assert answer.json()["state"] in ("requested", "provisioning", "ready")


async def test_no_body_is_refused_but_an_empty_object_makes_a_sandbox(
    served: Served,
) -> None:
    assert (await served.client.post("/v1/sandboxes")).status_code == 422
    assert (await served.client.post("/v1/sandboxes", {})).status_code == 201


@flow("stopSandbox", "resumeSandbox", "freezeSandbox", "thawSandbox", "recreateSandbox")
async def test_it_is_frozen_thawed_stopped_resumed_and_made_anew(served: Served) -> None:
    path = await served.sandbox()
    await served.client.put(target(f"{path}/files/content", path="/workspace/kept"), b"x")
    for verb, state in (("freeze", "frozen"), ("thaw", "ready"), ("stop", "stopped"), ("resume", "ready")):
        answer = await served.client.post(f"{path}/{verb}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["state"] == state
    assert (await served.client.get(target(f"{path}/files/stat", path="/workspace/kept"))).status_code == 200
    assert (await served.client.post(f"{path}/recreate")).json()["state"] == "ready"
    assert (await served.client.get(target(f"{path}/files/stat", path="/workspace/kept"))).status_code == 404


async def test_a_step_the_lifecycle_does_not_have_is_a_conflict_that_says_the_state(served: Served) -> None:
    path = await served.sandbox()
    await served.client.post(f"{path}/freeze")
    answer = await served.client.post(f"{path}/stop")
    assert answer.status_code == 409
    assert answer.json()["code"] == "illegal_transition"
    assert answer.json()["state"] == "frozen"
    assert answer.json()["fault"] == "caller"


async def test_a_frozen_sandbox_gives_its_files_but_runs_nothing(served: Served) -> None:
    path = await served.sandbox()
    await served.client.put(target(f"{path}/files/content", path="/workspace/f"), b"cold")
    await served.client.post(f"{path}/freeze")
    assert (await served.client.get(target(f"{path}/files/content", path="/workspace/f"))).content == b"cold"
    refused = await served.client.post(f"{path}/exec", {"command": "true"})
    assert refused.status_code == 409
    assert refused.json()["state"] == "frozen"


@flow("changeSandbox")
async def test_it_is_named_and_labelled_anew_and_found_by_that(served: Served) -> None:
    path = await served.sandbox(name="before", labels={"team": "a", "draft": "yes"})
    body = {"name": "after", "labels": {"team": "b", "draft": None}}
    changed = await served.client.send("PATCH", "/v1/sandboxes/before", body=body)
    assert changed.status_code == 200, changed.text
    assert (changed.json()["name"], changed.json()["labels"]) == ("after", {"team": "b"})
    assert (await served.client.get("/v1/sandboxes/after")).json() == changed.json()
    assert (await served.client.get("/v1/sandboxes/before")).status_code == 404
    for label, found in (("team=b", 1), ("team=a", 0), ("draft=yes", 0)):
        listed = await served.client.get(target("/v1/sandboxes", label=label))
        assert len(listed.json()["sandboxes"]) == found
    again = await served.client.send("PATCH", path, body={"labels": {"owner": "me"}})
    assert (again.json()["name"], again.json()["labels"]) == ("after", {"team": "b", "owner": "me"})


async def test_what_cannot_be_changed_so_says_why(served: Served) -> None:
    path = await served.sandbox(labels={f"l{number}": "" for number in range(64)})
    for body, status in (({"name": "-a"}, 422), ({"ttl": "1h"}, 422), ({"labels": {"one-more": "x"}}, 422)):
        assert (await served.client.send("PATCH", path, body=body)).status_code == status
    await served.client.delete(path)
    gone = await served.client.send("PATCH", path, body={"name": "late"})
    assert (gone.status_code, gone.json()["code"]) == (409, "illegal_transition")


@flow("extendTtl")
async def test_its_time_is_extended_within_the_profiles_maximum(served: Served) -> None:
    path = await served.sandbox(ttl="1h")
    before = (await served.client.get(path)).json()["expires_at"]
    answer = await served.client.send("PATCH", f"{path}/ttl", body={"duration": "30m"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["expires_at"] > before
    too_long = await served.client.send("PATCH", f"{path}/ttl", body={"duration": "3000d"})
    assert too_long.status_code == 422
    assert too_long.json()["field"] == "duration"


@flow("getReachability", "getUsage")
async def test_it_says_how_it_is_reached_and_what_it_uses(served: Served) -> None:
    path = await served.sandbox()
    reach = (await served.client.get(f"{path}/reachability")).json()
    assert reach["reachable"]
    assert reach["exec"] == f"{path}/exec"
    usage = (await served.client.get(f"{path}/usage")).json()
    assert usage["memory_limit_bytes"] > 0
    assert usage["processes_limit"] > 0


@flow("expireSandboxes")
async def test_expire_says_what_is_due_and_is_for_the_owner_only(served: Served) -> None:
    answer = await served.client.post("/v1/sandboxes/expire")
    assert answer.json() == {"applied": False, "sandbox_ids": []}
    stranger = await served.stranger()
    assert (await stranger.post("/v1/sandboxes/expire")).status_code == 403


async def test_someone_elses_sandbox_is_as_unknown_as_none(served: Served) -> None:
    path = await served.sandbox()
    stranger = await served.stranger()
    nothing = "/v1/sandboxes/sbx_" + "0" * 26
    for suffix in ("", "/usage", "/processes"):
        theirs, none = await stranger.get(path + suffix), await stranger.get(nothing + suffix)
        assert theirs.status_code == none.status_code == 404
        assert theirs.json()["code"] == none.json()["code"]
    assert (await stranger.get("/v1/sandboxes")).json()["sandboxes"] == []
    assert (await stranger.post(f"{path}/exec", {"command": "true"})).status_code == 404
    assert (await stranger.delete(path)).status_code == 404
    assert (await served.client.get(path)).json()["state"] in ("ready", "active")


async def test_pages_meet_without_gap_or_overlap(served: Served) -> None:
    made = [(await served.sandbox()).rsplit("/", 1)[1] for _ in range(5)]
    found: list[str] = []
    query: dict[str, object] = {"limit": 2}
    while True:
        page = (await served.client.get(target("/v1/sandboxes", **query))).json()
        found += [s["id"] for s in page["sandboxes"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert found == made[::-1]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"cursor": "bm9uc2Vuc2U"}, "cursor"),
        ({"cursor": "%%%"}, "cursor"),
        ({"limit": 0}, "limit"),
        ({"limit": 100000}, "limit"),
        ({"state": "sleepy"}, "state"),
        ({"label": "no-equals-sign"}, "label"),
    ],
)
async def test_a_wrong_query_names_the_parameter(
    served: Served, query: dict[str, object], field: str
) -> None:
    answer = await served.client.get(target("/v1/sandboxes", **query))
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"].startswith(field)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"profile": "profile.nonesuch"}, "profile"),
        ({"ttl": "forever"}, "ttl"),
        ({"resources": {"memory_mb": -1}}, "resources.memory_mb"),
        ({"resources": {"vcpus": 100}}, "resources"),
        ({"unknown_field": 1}, "unknown_field"),
        ({"env": {"A=B": "x"}}, "env"),
        ({"env": {"A": "nul\x00"}}, "env"),
        ({"name": "\n"}, "name"),
        ({"image": "../../etc"}, "image"),
    ],
)
async def test_a_wrong_field_is_named(served: Served, body: dict[str, object], field: str) -> None:
    answer = await served.client.post("/v1/sandboxes", body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["field"].startswith(field), answer.text
    assert answer.json()["fault"] == "caller"


async def test_trust_is_zero_unless_asked_for_and_nothing_but_zero_or_semi(served: Served) -> None:
    for asked, given in (({}, "zero"), ({"trust": "semi"}, "semi")):
        answer = await served.client.post("/v1/sandboxes", asked)
        assert (answer.status_code, answer.json()["trust"]) == (201, given)
    refused = await served.client.post("/v1/sandboxes", {"trust": "full"})
    assert refused.status_code == 422


@pytest.mark.parametrize(
    "value", ["NaN", "Infinity", "-Infinity", r'"\ud800"', "[" * 300 + "]" * 300, '"' + "x" * 70_000 + '"']
)
async def test_what_could_not_be_kept_is_refused(served: Served, value: str) -> None:
    for field in ("inputs", "consumer"):
        body = f'{{"{field}": {{"a": {value}}}}}'.encode()
        answer = await served.client.send(
            "POST", "/v1/sandboxes", content=body, headers={"content-type": "application/json"}
        )
        assert answer.status_code == 422, (field, value[:10], answer.status_code)
