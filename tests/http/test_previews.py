"""Previews over HTTP: made, listed, revoked by their owner; and what the TLS edge may ask."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from sqlalchemy import func, select

from sandboxer.access.http1.heads import read_request
from sandboxer.access.ports.ports import previews
from sandboxer.accounts import audit
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.edges.proxy.doors import VisitorLimits, peer_of
from sandboxer.edges.proxy.host_door import REMEMBERED_S
from sandboxer.edges.proxy.path_door import PathDoor
from sandboxer.settings import Settings
from tests.support.http.accounts import cut, funded
from tests.support.http.flows import flow
from tests.support.http.served import Served, serving


@flow("createPreview", "listPreviews", "revokePreview")
async def test_a_preview_is_made_listed_without_its_token_and_revoked(served: Served) -> None:
    path = await served.sandbox()
    made = await served.client.post(f"{path}/previews", {"port": 3000, "ttl": "1h", "wakes": False})
    assert made.status_code == 201, made.text
    preview = made.json()
    assert preview["token"] in preview["url"]
    assert preview["expires_at"] is not None
    listed = (await served.client.get(f"{path}/previews")).json()["previews"]
    assert [one["id"] for one in listed] == [preview["id"]]
    assert preview["token"] not in str(listed)
    for _ in range(2):
        gone = await served.client.delete(f"{path}/previews/{preview['id']}")
        assert gone.status_code == 204
    assert (await served.client.get(f"{path}/previews")).json() == {"previews": []}
    text = (await served.client.get(f"{path}/events?follow=false")).text
    assert "preview.created" in text
    assert text.count("event: preview.revoked") == 1


async def test_what_makes_no_sense_is_refused_and_others_see_nothing(served: Served) -> None:
    path = await served.sandbox()
    for body in (
        {"port": 0},
        {"port": 65536},
        {"port": 3000, "ttl": "91d"},
        {"port": 3000, "public": True, "one_time": True},
        {"port": 3000, "hold_s": 61},
    ):
        assert (await served.client.post(f"{path}/previews", body)).status_code == 422, body
    made = (await served.client.post(f"{path}/previews", {"port": 3000})).json()
    stranger = await served.stranger()
    assert (await stranger.post(f"{path}/previews", {"port": 3000})).status_code == 404
    assert (await stranger.get(f"{path}/previews")).status_code == 404
    assert (await stranger.delete(f"{path}/previews/{made['id']}")).status_code == 404
    other = await served.sandbox()
    assert (await served.client.delete(f"{other}/previews/{made['id']}")).status_code == 404


@flow("askForName")
async def test_the_edge_is_told_which_names_are_ours(served: Served) -> None:
    path = await served.sandbox()
    label = f"3000-{path.rsplit('/', 1)[1].replace('_', '-')}"
    async with httpx.AsyncClient(base_url=served.url) as http:
        known = await http.get("/v1/edge/ask", params={"domain": f"{label}.localhost"})
        assert known.status_code == 200
        for name in ("example.com", "localhost", f"{label}.example.com", f"a.{label}.localhost"):
            assert (await http.get("/v1/edge/ask", params={"domain": name})).status_code == 404, name


async def test_a_port_of_a_backend_without_sockets_is_reached_all_the_same(served: Served) -> None:
    """The fake's connections are carried by hand; what echoes there is no HTTP server, and is called so."""
    path = await served.sandbox()
    where = served.platform.access.ports.where
    assert where is not None
    made = (await served.client.post(f"{path}/previews", {"port": 3000, "public": True, "hold_s": 5})).json()
    begun = await served.client.post(f"{path}/processes", {"command": "echo-server 3000"})
    assert begun.status_code == 201, begun.text
    host = made["url"].removeprefix("http://").rstrip("/")
    async with httpx.AsyncClient(timeout=20.0) as http:
        answer = await http.get(f"http://127.0.0.1:{where.port}/", headers={"host": host})
    assert (answer.status_code, answer.json()["code"]) == (502, "bad_answer")


async def test_a_port_that_nobody_listens_on_is_answered_at_once(served: Served) -> None:
    path, where = await served.sandbox(), served.platform.access.ports.where
    assert where is not None
    made = (await served.client.post(f"{path}/previews", {"port": 3000})).json()
    async with httpx.AsyncClient(timeout=5.0) as http:
        host = made["url"].removeprefix("http://").partition("/")[0]
        headers = {"host": host, "x-sandboxer-preview": made["token"]}
        answer = await http.get(f"http://127.0.0.1:{where.port}/", headers=headers)
    assert (answer.status_code, answer.json()["code"]) == (502, "nothing_listens")
    assert answer.elapsed.total_seconds() < 2
    assert "listens on this port" in answer.json()["next_step"]


async def test_what_a_suspended_account_serves_is_neither_served_nor_woken(served: Served) -> None:
    tenant = await served.stranger("acme")
    box = (await tenant.post("/v1/sandboxes", {})).json()["id"]
    path, where = f"/v1/sandboxes/{box}", served.platform.access.ports.where
    assert where is not None
    for body in ({"port": 3000, "public": True, "hold_s": 0}, {"port": 4000, "hold_s": 0}):
        assert (await tenant.post(f"{path}/previews", body)).status_code == 201
    token = (await tenant.post(f"{path}/previews", {"port": 4000, "hold_s": 0})).json()["token"]
    assert (await tenant.post(f"{path}/freeze")).status_code == 200
    suspended = await served.client.post("/v1/accounts/acme/suspend", {"reason": "serves malware"})
    assert suspended.status_code == 200, suspended.text
    named = {"host": f"3000-{box.replace('_', '-')}.localhost"}
    async with httpx.AsyncClient() as http:
        for asked in (
            await http.get(f"http://127.0.0.1:{where.port}/", headers=named),
            await http.get(f"{served.url}{path}/ports/3000/"),
            await http.get(f"{served.url}{path}/ports/4000/", headers={"x-sandboxer-preview": token}),
        ):
            assert (asked.status_code, asked.json()["reason"]) == (403, "owner_not_active"), asked.text
    assert (await served.client.get(path)).json()["state"] == "frozen"
    assert (await served.client.post("/v1/accounts/acme/reinstate", {"reason": "mended"})).status_code == 200
    # It wakes the sandbox, and whoever wakes one waits for its program for a while.
    async with httpx.AsyncClient(timeout=30) as http:
        again = await http.get(f"{served.url}{path}/ports/3000/")
    assert (again.status_code, again.json()["code"]) == (502, "nothing_listens")


async def test_what_names_a_caller_is_not_told_to_the_program_inside(served: Served) -> None:
    path = await served.sandbox()
    assert (await served.client.post(f"{path}/previews", {"port": 3000, "public": True})).status_code == 201
    said = (
        f"GET {path}/ports/3000/ HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer v4.local.session-of-one\r\n"
        "Sign-In-With-X: signed\r\nX-Own: stays\r\n\r\n"
    )
    head = read_request(said.encode())
    platform = served.platform
    visitor_limits = VisitorLimits(platform.limiter, platform.limits, ())
    await PathDoor(platform, visitor_limits).admit(head, peer_of(("127.0.0.1", 1), ()))
    assert head.lines == [b"X-Own: stays\r\n"]
    own = read_request(said.replace("v4.local.session", "its own").encode())
    await PathDoor(platform, visitor_limits).admit(own, peer_of(("127.0.0.1", 1), ()))
    assert b"Authorization: Bearer its own-of-one\r\n" in own.lines


async def test_the_operator_at_a_tenant_s_port_leaves_a_row(served: Served) -> None:
    tenant = await served.stranger("acme")
    box = (await tenant.post("/v1/sandboxes", {})).json()["id"]
    for client in (tenant, served.client):
        await client.get(f"/v1/sandboxes/{box}/ports/3000/admin?page=2")
    seen = await served.platform.store.read(lambda conn: audit.page(conn, subject=box, limit=10))
    assert [(row.action, row.data["account"], row.data["query"]) for row in seen] == [
        ("sandbox.ports.admin", "acme", "page=2")
    ]


async def test_previews_that_are_over_do_not_pile_up(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandboxer.access.ports.ports.MAX_OVER", 3)
    path = await served.sandbox()
    for _ in range(8):
        made = (await served.client.post(f"{path}/previews", {"port": 3000})).json()
        assert (await served.client.delete(f"{path}/previews/{made['id']}")).status_code == 204
    box = path.rpartition("/")[2]
    count = select(func.count()).select_from(previews).where(previews.c.sandbox_id == box)
    assert await served.platform.store.read(lambda conn: conn.execute(count).scalar_one()) <= 4


async def test_a_key_that_may_not_wake_a_sandbox_makes_no_link_that_does(served: Served) -> None:
    parent = await funded(served, "team")
    runner = await cut(served, parent, scopes=["sandboxes:read", "sandboxes:create", "exec"])
    keeper = await cut(
        served, parent, scopes=["sandboxes:read", "sandboxes:create", "sandboxes:manage", "exec"]
    )
    path = f"/v1/sandboxes/{(await runner.post('/v1/sandboxes', {})).json()['id']}"
    refused = await runner.post(f"{path}/previews", {"port": 3000, "wakes": True})
    assert (refused.status_code, refused.json()["scope"]) == (403, "sandboxes:manage"), refused.text
    made = (await runner.post(f"{path}/previews", {"port": 3000, "hold_s": 0})).json()
    assert made["wakes"] is False
    assert (await served.client.post(f"{path}/freeze")).status_code == 200
    async with httpx.AsyncClient() as http:
        asleep = await http.get(
            f"{served.url}{path}/ports/3000/", headers={"x-sandboxer-preview": made["token"]}
        )
    assert (asleep.status_code, asleep.json()["reason"]) == (503, "asleep"), asleep.text
    assert (await served.client.get(path)).json()["state"] == "frozen"
    own = f"/v1/sandboxes/{(await keeper.post('/v1/sandboxes', {})).json()['id']}"
    assert (await keeper.post(f"{own}/previews", {"port": 3000})).json()["wakes"] is True


async def test_by_tls_the_cookie_has_the_prefix_that_keeps_neighbours_out(settings: Settings) -> None:
    trusting = settings.model_copy(update={"trusted_proxies": ("127.0.0.1/32",)})
    async with serving(trusting, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        path = await served.sandbox()
        where = served.platform.access.ports.where
        assert where is not None
        token = (await served.client.post(f"{path}/previews", {"port": 3000, "hold_s": 0})).json()["token"]
        name = f"3000-{path.rsplit('/', 1)[1].replace('_', '-')}.localhost"

        async def ask(scheme: str, target: str = "/", **headers: str) -> httpx.Response:
            reported = {"host": name, "x-forwarded-proto": scheme, **headers}
            async with httpx.AsyncClient() as http:
                return await http.get(f"http://127.0.0.1:{where.port}{target}", headers=reported)

        plain = (await ask("http", f"/?sandboxer_token={token}")).headers["set-cookie"]
        secure = (await ask("https", f"/?sandboxer_token={token}")).headers["set-cookie"]
        assert plain.startswith("sandboxer_preview=prv_")
        assert "Secure" not in plain
        assert secure.startswith("__Host-sandboxer_preview=prv_")
        assert "; Secure" in secure
        assert "; Path=/" in secure
        assert "Domain" not in secure
        good, bare = secure.partition(";")[0], plain.partition(";")[0]
        # Nothing listens there: 502 is past the door.
        assert (await ask("http", cookie=bare)).status_code == 502
        assert (await ask("https", cookie=good)).status_code == 502
        await asyncio.sleep(REMEMBERED_S + 0.1)
        assert (await ask("https", cookie=bare)).status_code == 401, "a neighbour could have set it"
        tossed = f"sandboxer_preview=prv_of_a_neighbour; {good}"
        assert (await ask("https", cookie=tossed)).status_code == 502
