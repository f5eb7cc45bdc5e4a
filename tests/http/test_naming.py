"""Things are named by their id, by the beginning of one, or by a name; the same for every noun."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from sandboxer.kernel.errors import NoCapacity
from tests.support.http.served import Served
from tests.support.http.signed import Client, Credentials, target


async def made(client: Client, path: str, body: dict[str, object]) -> str:
    answer = await client.post(path, body)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_a_sandbox_is_meant_by_its_name_and_by_the_beginning_of_its_id(served: Served) -> None:
    bob = await served.stranger("bob")
    mine = await made(bob, "/v1/sandboxes", {"name": "my dev"})
    for word in (mine, "my dev", mine[:20]):
        assert (await bob.get(f"/v1/sandboxes/{quote(word)}")).json()["id"] == mine
    ran = await bob.post("/v1/sandboxes/my%20dev/exec", {"argv": ["true"]})
    assert ran.json()["exit_code"] == 0
    assert (await bob.delete("/v1/sandboxes/my%20dev")).json()["state"] == "destroyed"
    assert (await bob.get("/v1/sandboxes/my%20dev")).status_code == 404
    # Its record is still found by what begins its id: nothing else fits.
    assert (await bob.get(f"/v1/sandboxes/{mine[:20]}")).json()["state"] == "destroyed"


async def test_a_word_that_fits_two_things_means_neither_and_they_are_listed(served: Served) -> None:
    made_of = await served.sandbox()
    first, second = [await made(served.client, f"{made_of}/snapshots", {"name": "twin"}) for _ in range(2)]
    answer = await served.client.delete("/v1/snapshots/twin")
    assert (answer.status_code, answer.json()["code"]) == (409, "ambiguous")
    assert {one["id"] for one in answer.json()["fits"]} == {first, second}
    assert first in answer.json()["detail"]
    assert second in answer.json()["detail"]
    shared = next(n for n in range(30) if first[n] != second[n])
    if shared > len("snp_"):
        assert (await served.client.get(f"/v1/snapshots/{first[:shared]}")).status_code == 409
    assert (await served.client.get(f"/v1/snapshots/{first[: shared + 1]}")).json()["id"] == first
    await served.client.delete(f"/v1/snapshots/{first}")
    assert (await served.client.get("/v1/snapshots/twin")).json()["id"] == second


async def test_a_name_that_a_living_sandbox_has_is_refused_with_what_to_do(served: Served) -> None:
    first = await made(served.client, "/v1/sandboxes", {"name": "my dev"})
    second = await made(served.client, "/v1/sandboxes", {"name": "other"})
    refused = await served.client.post("/v1/sandboxes", {"name": "my dev"})
    renamed = await served.client.send("PATCH", "/v1/sandboxes/other", body={"name": "my dev"})
    for answer in (refused, renamed):
        assert (answer.status_code, answer.json()["reason"]) == (409, "name_taken")
        assert first in answer.json()["detail"]
        assert "DELETE /v1/sandboxes/my%20dev" in answer.json()["next_step"]
    assert (await served.client.get("/v1/sandboxes/other")).json()["id"] == second
    # Its own name again is no other's; and a name is free once nobody has it.
    again = await served.client.send("PATCH", "/v1/sandboxes/my%20dev", body={"name": "my dev"})
    assert again.status_code == 200
    await served.client.delete("/v1/sandboxes/my%20dev")
    third = await made(served.client, "/v1/sandboxes", {"name": "my dev"})
    assert (await served.client.get("/v1/sandboxes/my%20dev")).json()["id"] == third


async def test_what_came_to_nothing_does_not_stand_in_the_way_of_a_name(served: Served) -> None:
    backend, failed = served.backend, []
    for _ in range(3):
        backend.fail_next("provision", NoCapacity(resource="room", why="the host is full"))
        refused = await served.client.post("/v1/sandboxes", {"name": "crowded"})
        failed.append(refused.json()["sandbox_id"])
    # The last of them says why; none of them keeps the name from who gets it.
    last = await served.client.get("/v1/sandboxes/crowded")
    assert (last.status_code, last.json().get("id")) == (200, failed[-1]), last.text
    living = await made(served.client, "/v1/sandboxes", {"name": "crowded"})
    assert (await served.client.get("/v1/sandboxes/crowded")).json()["id"] == living


async def test_a_stranger_learns_nothing_from_names_and_beginnings(served: Served) -> None:
    alice, bob = await served.stranger("alice"), await served.stranger("bob")
    mine = await made(alice, "/v1/sandboxes", {"name": "hers"})
    snapshot = await made(alice, f"/v1/sandboxes/{mine}/snapshots", {"name": "hers"})
    await made(alice, "/v1/images", {"snapshot": snapshot, "name": "hers", "visibility": "unlisted"})
    for noun in ("sandboxes", "snapshots", "images", "volumes", "services", "sessions"):
        there, nowhere = [await bob.get(f"/v1/{noun}/{word}") for word in ("hers", "none")]
        assert there.status_code == nowhere.status_code == 404
        assert there.json()["detail"].replace("hers", "none") == nowhere.json()["detail"]
    assert (await bob.get(f"/v1/sandboxes/{mine[:8]}")).status_code == 404
    # An unlisted image is for who knows its whole id.
    image = (await alice.get("/v1/images/hers")).json()["id"]
    assert (await bob.get(f"/v1/images/{image[:16]}")).status_code == 404
    assert (await bob.get(f"/v1/images/{image}")).status_code == 200


async def test_the_operator_is_not_sent_into_a_tenants_sandbox_by_its_name(served: Served) -> None:
    bob = await served.stranger("bob")
    his = await made(bob, "/v1/sandboxes", {"name": "prod"})
    assert (await served.client.get("/v1/sandboxes/prod")).status_code == 404
    # Nobody chooses an id: its beginning is the operator's to use, and that is written down in full.
    assert (await served.client.get(f"/v1/sandboxes/{his[:20]}")).json()["id"] == his
    read = await served.client.get(target(f"/v1/sandboxes/{his[:20]}/files", path="/"))
    assert read.status_code == 200
    rows = (await served.client.get("/v1/audit")).text
    assert his in rows


async def test_a_key_without_the_scope_hears_of_no_name(served: Served) -> None:
    bob = await served.stranger("bob")
    await made(bob, "/v1/sandboxes", {"name": "dev"})
    cut = (await bob.post("/v1/keys/delegated", {"name": "c", "scopes": ["account:read"]})).json()
    child = served.as_(Credentials(cut["public_key"], cut["secret_key"]))
    answers = [(await child.get(f"/v1/sandboxes/{word}")).status_code for word in ("dev", "none")]
    assert answers == [403, 403]


async def test_bodies_and_queries_name_things_the_same_way(served: Served) -> None:
    client = served.client
    box = await made(client, "/v1/sandboxes", {"name": "dev"})
    snapshot = await made(client, "/v1/sandboxes/dev/snapshots", {"name": "before"})
    copy = (await client.post("/v1/sandboxes", {"snapshot": "before", "profile": "agent-dev"})).json()
    assert copy["profile"] == "profile.agent-dev"
    listed = (await client.get(target("/v1/snapshots", sandbox_id="dev"))).json()["snapshots"]
    assert [one["id"] for one in listed] == [snapshot]
    volume = await made(client, "/v1/volumes", {"name": "models", "size_mb": 16})
    mounts = [{"volume": volume[:20], "path": "/m"}]
    with_disk = await client.post("/v1/sandboxes", {"volumes": mounts})
    assert [one["volume_id"] for one in with_disk.json()["volumes"]] == [volume]
    image = await made(client, "/v1/images", {"sandbox": "dev", "name": "tools"})
    for word in ("tools", image[:20]):
        spawned = await client.post("/v1/sandboxes", {"image": word})
        assert spawned.json()["image"] == image, spawned.text
    wrong = await client.post("/v1/sandboxes", {"snapshot": "none"})
    assert (wrong.status_code, wrong.json()["detail"]) == (404, "No such snapshot: none")
    wrong = await client.get(target("/v1/snapshots", sandbox_id="none"))
    assert (wrong.status_code, wrong.json()["detail"]) == (404, "No such sandbox: none")
    assert (await client.get(f"/v1/sandboxes/{box}")).status_code == 200


async def test_nobodys_own_name_hides_an_image_of_the_host(served: Served) -> None:
    await made(served.client, "/v1/sandboxes", {"name": "dev"})
    await made(served.client, "/v1/images", {"sandbox": "dev", "name": "base"})
    assert (await served.client.post("/v1/sandboxes", {"image": "base"})).json()["image"] == "base"
    unknown = await served.client.post("/v1/sandboxes", {"image": "nowhere"})
    assert unknown.status_code == 422


@pytest.mark.parametrize("word", ["snp_0123", "sbx_", "sbx_0123u", "a_b", "a%2Fb", "-x", "x" * 64])
async def test_what_can_be_no_name_of_a_sandbox_is_refused_as_before(served: Served, word: str) -> None:
    assert (await served.client.get(f"/v1/sandboxes/{word}")).status_code in (404, 422)


async def test_a_whole_id_is_not_looked_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    path = await served.sandbox()

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("a whole id was looked up")

    monkeypatch.setattr("sandboxer.store.rows.Rows.meant", fail)
    assert (await served.client.get(path)).status_code == 200
