"""The requests of the first three callers, word for word, and what else they ask for, on the fake."""

from __future__ import annotations

import asyncio
from itertools import product

import pytest

from tests.support.http.served import Served

# glas-harness runs an agent's tools in it.
HARNESS = {
    "profile": "profile.agent-dev",
    "scope": "session",
    "workspace": {"mode": "remote", "access": "rw"},
    "consumer": {"actor": "agt", "harness": "glas-harness", "session_id": "s-17"},
}
# wise-validator runs tests from end to end on it.
VALIDATOR = {
    "profile": "profile.compose-e2e",
    "inputs": {"repo_ref": "main", "compose_bundle_ref": "e2e/compose.yml"},
    "ttl": "2h",
    "consumer": {"actor": "atm", "harness": "wise-validator", "run_id": "r-4"},
}
# snuggle-inventor builds and checks what it wrote in it.
INVENTOR = {
    "profile": "profile.build",
    "setup_metadata": {"instructions_ref": "setup/instructions.md", "secret_refs": ["REGISTRY_TOKEN"]},
    "consumer": {"actor": "agt", "harness": "snuggle-inventor", "job_id": "j-9"},
}


async def test_the_harness_gets_a_sandbox_for_its_session(served: Served) -> None:
    made = await served.client.post("/v1/sandboxes", HARNESS)
    assert made.status_code == 201, made.text
    said = made.json()
    assert said["state"] == "ready"
    assert said["scope"] == "session"
    assert said["workspace"] == {"path": "/workspace", "mode": "remote-canonical", "access": "rw"}
    assert said["consumer"] == HARNESS["consumer"]
    events = await served.client.get(f"/v1/sandboxes/{said['id']}/events?follow=false")
    assert '"harness":"glas-harness"' in events.text.replace(" ", "")


# As their authors wrote them: members without a value.
@pytest.mark.parametrize(
    ("wanted", "answered"),
    [
        ({**HARNESS, "consumer": {"actor": "agt", "harness": "glas-harness", "session_id": None}}, ["scope"]),
        (
            {
                "profile": "profile.build",
                "setup_metadata": {"instructions_ref": None, "secret_refs": None},
                "consumer": {"actor": "agt", "harness": "snuggle-inventor", "job_id": None},
            },
            [],
        ),
    ],
)
async def test_a_request_whose_members_have_no_value_is_taken(
    served: Served, wanted: dict[str, object], answered: list[str]
) -> None:
    made = await served.client.post("/v1/sandboxes", wanted)
    assert made.status_code == 201, made.text
    assert made.json()["consumer"] == wanted["consumer"]
    assert [one["wish"] for one in made.json()["answered"]] == answered


@pytest.mark.parametrize("actor", ["adm", "agt", "atm"])
async def test_every_kind_of_actor_is_kept_with_what_it_made(served: Served, actor: str) -> None:
    made = await served.client.post("/v1/sandboxes", {"consumer": {"actor": actor, "session_id": None}})
    assert made.json()["consumer"] == {"actor": actor, "session_id": None}


async def test_whoever_names_the_same_session_again_gets_the_same_sandbox(served: Served) -> None:
    first = (await served.client.post("/v1/sandboxes", HARNESS)).json()
    again = (await served.client.post("/v1/sandboxes", HARNESS)).json()
    assert again["id"] == first["id"]
    other = {**HARNESS, "consumer": {**HARNESS["consumer"], "session_id": "s-18"}}  # type: ignore[dict-item]
    assert (await served.client.post("/v1/sandboxes", other)).json()["id"] != first["id"]
    # Without a word of its scope it is a new one, as ever.
    unsaid = {name: value for name, value in HARNESS.items() if name != "scope"}
    assert (await served.client.post("/v1/sandboxes", unsaid)).json()["id"] != first["id"]
    stranger = await served.stranger()
    assert (await stranger.post("/v1/sandboxes", HARNESS)).json()["id"] != first["id"]
    assert (await served.client.delete(f"/v1/sandboxes/{first['id']}")).status_code == 200
    assert (await served.client.post("/v1/sandboxes", HARNESS)).json()["id"] != first["id"]


async def test_many_who_ask_at_once_share_one(served: Served) -> None:
    wanted = {**HARNESS, "scope": "agent"}
    made = await asyncio.gather(*(served.client.post("/v1/sandboxes", wanted) for _ in range(8)))
    assert {one.status_code for one in made} == {201}
    assert len({one.json()["id"] for one in made}) == 1


async def test_every_scope_and_workspace_is_kept_or_refused_by_its_name(served: Served) -> None:
    made = set()
    for scope, mode, access in product(
        ("session", "agent", "shared"), ("mirror", "remote"), ("none", "ro", "rw")
    ):
        wanted = {**HARNESS, "scope": scope, "workspace": {"mode": mode, "access": access}}
        answer = await served.client.post("/v1/sandboxes", wanted)
        if access == "rw":
            assert answer.status_code == 201, answer.text
            made.add(answer.json()["id"])
        else:
            # The fake has no mounts.
            assert answer.status_code == 422, answer.text
            assert answer.json()["promise"] == "workspace.access"
            assert access in answer.json()["detail"]
    assert len(made) == 6


async def test_the_validator_is_told_which_backend_is_missing(served: Served) -> None:
    answer = await served.client.post("/v1/sandboxes", VALIDATOR)
    assert answer.status_code == 422, answer.text
    assert answer.json()["capability"] == "ext.compose-ssh"
    assert "SANDBOXER_BACKENDS" in answer.text


async def test_a_secret_that_the_account_has_not_is_refused_by_its_name(served: Served) -> None:
    refused = await served.client.post("/v1/sandboxes", INVENTOR)
    assert refused.status_code == 404, refused.text
    assert "REGISTRY_TOKEN" in refused.text


async def test_what_a_caller_leaves_empty_is_as_if_it_had_not_said_it(served: Served) -> None:
    empty = {
        "profile": "profile.build",
        "scope": None,
        "workspace": {"mode": None, "access": None},
        "setup": {"instructions": None, "secret_refs": None},
        "setup_metadata": {"instructions_ref": None, "secret_refs": None},
        "inputs": {"repo_ref": None, "compose_bundle_ref": None},
        "placement": {},
    }
    made = await served.client.post("/v1/sandboxes", empty)
    assert made.status_code == 201, made.text
    assert made.json()["answered"] == []


async def test_a_member_that_nobody_knows_is_still_refused(served: Served) -> None:
    for wrong in (
        {"workspace": {"acess": "ro"}},
        {"setup_metadata": {"instructions": "make"}},
        {"placement": {"preferred": []}},
        {"scope": "team"},
        {"isolation": "fortress"},
    ):
        assert (await served.client.post("/v1/sandboxes", wrong)).status_code == 422


async def test_a_wish_for_a_place_is_answered_in_the_record(served: Served) -> None:
    made = await served.client.post("/v1/sandboxes", {"placement": {"prefer": ["sandboxer01"]}})
    seen = await served.client.get(f"/v1/sandboxes/{made.json()['id']}")
    assert seen.json()["answered"] == made.json()["answered"]
    assert seen.json()["answered"][0]["honoured"] is False
    assert "sandboxer01" in seen.json()["answered"][0]["reason"]


@pytest.mark.parametrize(
    ("wish", "promise"), [({"isolation": "microvm"}, "isolation"), ({"checkpoint": "memory"}, "checkpoint")]
)
async def test_what_the_wall_cannot_do_is_refused_by_its_name(
    served: Served, wish: dict[str, str], promise: str
) -> None:
    refused = await served.client.post("/v1/sandboxes", wish)
    assert refused.status_code == 422, refused.text
    assert refused.json()["code"] == "not_available"
    assert refused.json()["promise"] == promise
