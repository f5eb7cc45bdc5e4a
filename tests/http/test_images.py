"""Published images over HTTP, on the fake: every verb, and what refuses."""

from __future__ import annotations

from typing import Any

from tests.http.conftest import Served
from tests.http.flows import flow
from tests.http.signed import Client
from tests.http.test_locks import proof, with_both


async def published(client: Client, **wanted: object) -> Any:
    sandbox = (await client.post("/v1/sandboxes", {})).json()["id"]
    wrote = await client.put(f"/v1/sandboxes/{sandbox}/files/content?path=/workspace/word", b"hello")
    assert wrote.status_code == 200, wrote.text
    kept = (await client.post(f"/v1/sandboxes/{sandbox}/snapshots", {})).json()["id"]
    made = await client.post("/v1/images", {"snapshot": kept, "name": "tool", **wanted})
    assert made.status_code == 201, made.text
    return made.json()


@flow("publishImage", "getImage", "verifyImage", "spawnImage", "cloneImage", "removeImage", "changeImage")
async def test_an_image_is_published_started_from_and_removed(served: Served) -> None:
    client, stranger = await served.stranger("alice"), await served.stranger("bob")
    image = await published(client)
    path = f"/v1/images/{image['id']}"
    assert (await client.get(path)).json()["digest"] == image["digest"]
    assert (await client.post(f"{path}/verify")).json()["verified_at"] is not None
    for method, where in (("GET", path), ("DELETE", path), ("POST", f"{path}/spawn")):
        body = {} if where.endswith("spawn") else None
        assert (await stranger.send(method, where, body=body)).status_code == 404
    made = (await client.post(f"{path}/spawn", {"count": 2})).json()["sandboxes"]
    word = await client.get(f"/v1/sandboxes/{made[1]['id']}/files/content?path=/workspace/word")
    assert word.content == b"hello"
    opened = await client.send("PATCH", path, body={"visibility": "unlisted", "name": "tools"})
    assert (opened.json()["visibility"], opened.json()["name"]) == ("unlisted", "tools")
    mine = await stranger.post(f"{path}/clone", {})
    assert (mine.status_code, mine.json()["digest"]) == (201, image["digest"])
    assert (await stranger.delete(path)).status_code == 403
    assert (await client.delete(path)).json()["state"] == "dropped"
    assert (await client.delete(path)).status_code == 200
    assert (await client.post(f"{path}/spawn", {})).status_code == 409
    wrong = await client.post("/v1/images", {"name": "none"})
    assert (wrong.status_code, wrong.json()["code"]) == (422, "invalid_request")


@flow("listImageGrants", "grantImage", "revokeImage", "transferImage", "acceptImage")
async def test_an_image_is_granted_and_handed_over(served: Served) -> None:
    client, other = await served.stranger("alice"), await served.stranger("bob")
    path = f"/v1/images/{(await published(client))['id']}"
    assert (await client.post(f"{path}/grants", {"account": "bob"})).json() == {"accounts": ["bob"]}
    assert (await client.get(f"{path}/grants")).json() == {"accounts": ["bob"]}
    assert (await other.get(path)).status_code == 200
    assert (await client.delete(f"{path}/grants/bob")).json() == {"accounts": []}
    assert (await other.get(path)).status_code == 404
    assert (await other.post(f"{path}/accept")).status_code == 404
    assert (await client.post(f"{path}/transfer", {"account": "bob"})).json()["offered_to"] == "bob"
    assert (await other.post(f"{path}/accept")).json()["account"] == "bob"
    assert (await client.get(path)).status_code == 404


@flow("exportImage", "importImage")
async def test_what_is_exported_can_be_imported(served: Served) -> None:
    client = await served.stranger("alice")
    path = f"/v1/images/{(await published(client))['id']}"
    for form in ("oci", "docker"):
        archive = await client.get(f"{path}/export?format={form}")
        assert (archive.status_code, archive.headers["content-type"]) == (200, "application/x-tar")
        back = await client.send("POST", "/v1/images/import?name=back", content=archive.content)
        assert back.status_code == 201, back.text
        made = await client.post("/v1/sandboxes", {"image": back.json()["id"]})
        assert made.status_code == 201, made.text
        word = await client.get(f"/v1/sandboxes/{made.json()['id']}/files/content?path=/workspace/word")
        assert word.content == b"hello"
    broken = await client.send("POST", "/v1/images/import?name=x", content=b"no tar" * 200)
    assert (broken.status_code, broken.json()["field"]) == (422, "archive")


@flow("lockImage", "unlockImage")
async def test_a_locked_image_is_removed_only_with_the_other_factor(served: Served) -> None:
    client, session = await with_both(served)
    path = f"/v1/images/{(await published(client))['id']}"
    assert (await client.post(f"{path}/lock")).json()["locked_at"] is not None
    for method, target in (("DELETE", path), ("POST", f"{path}/unlock")):
        assert (await client.send(method, target)).status_code == 428
    asked = (await client.post(f"{path}/unlock")).json()
    unlocked = await client.post(f"{path}/unlock", headers=proof(asked, session.signer))
    assert unlocked.json()["locked_at"] is None
    assert (await client.delete(path)).json()["state"] == "dropped"
