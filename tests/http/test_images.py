"""Published images over HTTP, on the fake: every verb, and what refuses."""

from __future__ import annotations

import asyncio
import gzip
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from sqlalchemy import Connection, select

from sandboxer.artifacts.images.published import use_cases
from sandboxer.store.idempotency import idempotency
from tests.support.http.accounts import with_both
from tests.support.http.flows import flow
from tests.support.http.served import Served, eventually
from tests.support.http.signed import Client
from tests.support.http.wallets import proof


async def published(client: Client, **wanted: object) -> Any:
    sandbox = (await client.post("/v1/sandboxes", {})).json()["id"]
    wrote = await client.put(f"/v1/sandboxes/{sandbox}/files/content?path=/workspace/word", b"hello")
    assert wrote.status_code == 200, wrote.text
    kept = (await client.post(f"/v1/sandboxes/{sandbox}/snapshots", {})).json()["id"]
    made = await client.post("/v1/images", {"snapshot": kept, "name": "tool", **wanted})
    assert made.status_code == 201, made.text
    return made.json()


def keys(conn: Connection) -> list[str]:
    return list(conn.execute(select(idempotency.c.key)).scalars())


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


async def test_an_image_is_shared_by_public_id_and_never_with_an_account_that_does_not_exist(
    served: Served,
) -> None:
    client, other = await served.stranger("alice"), await served.stranger("bob")
    path = f"/v1/images/{(await published(client))['id']}"
    public_id = (await other.get("/v1/accounts/me")).json()["account"]["public_id"]
    assert public_id.startswith("pub_")
    for act in ("grants", "transfer"):
        for nobody in ("nobody-at-all", "pub_01hzzzzzzzzzzzzzzzzzzzzzzz"):
            refused = await client.post(f"{path}/{act}", {"account": nobody})
            assert (refused.status_code, refused.json()["code"]) == (404, "not_found"), refused.text
    assert (await client.get(f"{path}/grants")).json() == {"accounts": []}
    assert (await client.post(f"{path}/grants", {"account": public_id})).status_code == 200
    assert (await other.get(path)).status_code == 200
    assert (await client.delete(f"{path}/grants/{public_id}")).json() == {"accounts": []}
    assert (await other.get(path)).status_code == 404
    assert (await client.post(f"{path}/transfer", {"account": public_id})).status_code == 200
    assert (await other.post(f"{path}/accept")).status_code == 200
    own = (await client.get("/v1/accounts/me")).json()["account"]["public_id"]
    assert (await other.post(f"{path}/transfer", {"account": own})).status_code == 200


async def test_a_key_is_not_made_for_an_account_named_like_a_public_id(served: Served) -> None:
    refused = await served.client.post("/v1/keys", {"name": "k", "account": "pub_01hzzzzzzzzzzzz"})
    assert (refused.status_code, refused.json()["field"]) == (422, "account")
    refused = await served.client.post("/v1/accounts", {"id": "pub_acme", "reason": "trick"})
    assert (refused.status_code, refused.json()["field"]) == (422, "account")


@flow("exportImage", "importImage")
async def test_what_is_exported_can_be_imported(served: Served) -> None:
    client = await served.stranger("alice")
    path = f"/v1/images/{(await published(client))['id']}"
    for form in ("oci", "docker"):
        archive = await client.get(f"{path}/export?format={form}")
        assert (archive.status_code, archive.headers["content-type"]) == (200, "application/x-tar")
        # As `docker save | gzip` sends it.
        sent = gzip.compress(archive.content) if form == "docker" else archive.content
        back = await client.send("POST", "/v1/images/import?name=back", content=sent)
        assert back.status_code == 201, back.text
        made = await client.post("/v1/sandboxes", {"image": back.json()["id"]})
        assert made.status_code == 201, made.text
        word = await client.get(f"/v1/sandboxes/{made.json()['id']}/files/content?path=/workspace/word")
        assert word.content == b"hello"
    broken = await client.send("POST", "/v1/images/import?name=x", content=b"no tar" * 200)
    assert (broken.status_code, broken.json()["field"]) == (422, "archive")


async def test_an_import_is_repeated_by_its_key_without_a_second_image(served: Served) -> None:
    client = await served.stranger("alice")
    path = f"/v1/images/{(await published(client))['id']}"
    archive = (await client.get(f"{path}/export")).content
    words = {"content": archive, "headers": {"idempotency-key": "import-1"}}
    first = await client.send("POST", "/v1/images/import?name=back", **words)
    again = await client.send("POST", "/v1/images/import?name=back", **words)
    assert (first.status_code, again.status_code) == (201, 201)
    assert (again.content, again.headers["idempotent-replayed"]) == (first.content, "true")
    assert again.headers["location"] == first.headers["location"]
    for other in ({"target": "/v1/images/import?name=other"}, {"content": archive + b"\0" * 512}):
        bent = {"target": "/v1/images/import?name=back", **words, **other}
        refused = await client.send("POST", **bent)
        assert (refused.status_code, refused.json()["code"]) == (409, "idempotency_conflict")
    # What failed may be mended and sent again under the same key.
    head = {"idempotency-key": "import-2"}
    broken = await client.send("POST", "/v1/images/import?name=x", content=b"no tar" * 200, headers=head)
    assert broken.status_code == 422
    mended = await client.send("POST", "/v1/images/import?name=x", content=archive, headers=head)
    assert mended.status_code == 201, mended.text
    named = [one["name"] for one in (await client.get("/v1/images?filter=owned")).json()["published"]]
    assert sorted(named) == ["back", "tool", "x"]


async def test_a_key_is_taken_while_its_archive_arrives_and_free_when_the_sender_is_gone(
    served: Served,
) -> None:
    client = await served.stranger("alice")
    path = f"/v1/images/{(await published(client))['id']}"
    archive = (await client.get(f"{path}/export")).content
    target, head = "/v1/images/import?name=back", {"idempotency-key": "import-1"}
    started, gone = asyncio.Event(), asyncio.Event()

    async def halves() -> AsyncIterator[bytes]:
        yield archive[:2000]
        started.set()
        await gone.wait()

    signed = client.request("POST", target, content=archive, headers=head).headers
    slow = client.http.build_request("POST", target, content=halves(), headers=signed)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(client.http.send(slow))
        await started.wait()

        async def repeated() -> httpx.Response:
            return await client.send("POST", target, content=archive, headers=head)

        deadline = time.monotonic() + 30
        while "import-1" not in await served.platform.store.read(keys):
            assert time.monotonic() < deadline, "the key was never taken"
            await asyncio.sleep(0.02)
        early = await repeated()
        assert (early.status_code, "under way" in early.json()["detail"]) == (409, True)
        first.cancel()
        while (after := await repeated()).status_code == 409:
            assert time.monotonic() < deadline, "the key was never given back"
            await asyncio.sleep(0.02)
        assert after.status_code == 201, after.text
    named = [one["name"] for one in (await client.get("/v1/images?filter=owned")).json()["published"]]
    assert sorted(named) == ["back", "tool"]


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


async def test_images_that_are_long_gone_through_leave_threads_to_everybody_else(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = await served.stranger("alice"), await served.stranger("bob")
    mine, others = [f"/v1/images/{(await published(who))['id']}/verify" for who in (alice, bob)]
    begun: list[int] = []
    may_end = threading.Event()

    def long(*given: object, **more: object) -> None:
        begun.append(1)
        may_end.wait(120)

    monkeypatch.setattr(use_cases, "verify", long)
    try:
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(alice.post(mine)) for _ in range(12)]
            await eventually(lambda: len(begun) == 2, 30)
            # Its account's own wait; another's goes on, and so does what has nothing to do with images.
            asked.append(group.create_task(bob.post(others)))
            await eventually(lambda: len(begun) == 3, 30)
            async with asyncio.timeout(30):
                await asyncio.to_thread(int)
            may_end.set()
    finally:
        may_end.set()
    assert asked[-1].result().status_code == 200
