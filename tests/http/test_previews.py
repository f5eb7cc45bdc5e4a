"""Previews over HTTP: made, listed, revoked by their owner; and what the TLS edge may ask."""

from __future__ import annotations

import httpx

from tests.http.conftest import Served
from tests.http.flows import flow


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
    told = (await served.client.get(f"{path}/events?follow=false")).text
    assert "preview.created" in told
    assert told.count("event: preview.revoked") == 1


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
