"""Streams and terminals end within a second of the credentials that opened them."""

from __future__ import annotations

import asyncio
import contextlib
import time

import httpx
import pytest
import websockets

from tests.support.http.accounts import cut, funded
from tests.support.http.served import Served, eventually
from tests.support.http.signed import Client, Credentials
from tests.support.http.wallets import sign_in

WITHIN_S = 1.0


async def listen(client: Client, path: str, heard: list[str]) -> float:
    """Follow until the stream ends; returns when it did."""
    async for event in client.events("GET", f"{path}/events?follow=true"):
        heard.append(event.name if event.name != "error" else event.data["code"])
    return time.monotonic()


@pytest.mark.parametrize("how", ["revoke", "suspend", "regenerate", "revoke_parent", "suspend_account"])
async def test_a_followed_stream_ends_with_its_key(served: Served, how: str) -> None:
    team = await funded(served, "team")
    client = await cut(served, team, slots=2, budget_sats=1000) if how == "revoke_parent" else team
    made = await client.post("/v1/sandboxes", {})
    path = f"/v1/sandboxes/{made.json()['id']}"
    heard: list[str] = []
    following = asyncio.create_task(listen(client, path, heard))
    await eventually(lambda: len(heard) >= 3)
    public_key = team.credentials.public_key
    began = time.monotonic()
    if how == "suspend":
        done = await served.client.post(f"/v1/keys/{public_key}/suspend", {"why": "stolen"})
    elif how == "regenerate":
        # Whoever has the old secret may be a thief: what he opened ends with it.
        done = await served.client.post(f"/v1/keys/{public_key}/regenerate", {})
    elif how == "suspend_account":
        done = await served.client.post("/v1/accounts/team/suspend", {"reason": "abuse"})
    else:
        done = await served.client.delete(f"/v1/keys/{public_key}")
    assert done.status_code in (200, 204), done.text
    async with asyncio.timeout(5):
        ended = await following
    # From the answer of the revocation; its own work is not the stream's.
    assert ended - began < WITHIN_S + 0.5
    # What a delegated key has is destroyed with it; its stream may end by telling of that.
    assert heard[-1] in ("unauthenticated", "forbidden", "sandbox.destroyed")
    assert (heard[-1] == "sandbox.destroyed") <= (how == "revoke_parent")


async def test_who_waits_for_a_process_is_sent_away_with_its_key(served: Served) -> None:
    team = await funded(served, "team")
    path = f"/v1/sandboxes/{(await team.post('/v1/sandboxes', {})).json()['id']}"
    process = (await team.post(f"{path}/processes", {"argv": ["sleep", "100"]})).json()
    waiting = asyncio.create_task(team.get(f"{path}/processes/{process['process_id']}/wait?timeout_s=30"))
    for _ in range(5):
        # Asked after it, and answered.
        assert (await served.client.get(path)).status_code == 200
    suspended = await served.client.post(f"/v1/keys/{team.credentials.public_key}/suspend", {"why": "stolen"})
    assert suspended.status_code == 204, suspended.text
    async with asyncio.timeout(5):
        refused = await waiting
    assert refused.status_code == 401
    assert refused.json()["why"] == "the credentials that opened this ended"


async def test_a_terminal_ends_with_its_key_and_others_go_on(served: Served) -> None:
    team, other = await funded(served, "team"), await funded(served, "other")
    async with asyncio.TaskGroup() as group:
        ours = group.create_task(open_terminal(served, team))
        theirs = group.create_task(open_terminal(served, other))
    await served.client.delete(f"/v1/keys/{team.credentials.public_key}")
    began = time.monotonic()
    async with asyncio.timeout(5):
        await ours.result().wait_closed()
    assert ours.result().close_code == 1008
    assert time.monotonic() - began < WITHIN_S
    assert theirs.result().close_code is None
    await theirs.result().close()


async def open_terminal(served: Served, client: Client) -> websockets.ClientConnection:
    made = await client.post("/v1/sandboxes", {})
    target = f"/v1/sandboxes/{made.json()['id']}/terminal?command=sleep%20600"
    url = served.url.replace("http", "ws") + target
    socket = await websockets.connect(url, additional_headers=client.credentials.head("GET", target))
    assert "terminal_id" in str(await socket.recv())
    return socket


async def test_a_stream_ends_with_the_session_that_opened_it(served: Served) -> None:
    session = await sign_in(served.client.http, "alice")
    path = f"/v1/sandboxes/{(await session.send('POST', '/v1/sandboxes', {})).json()['id']}"

    async def follow() -> float:
        head = {"authorization": f"Bearer {session.token}", "accept": "text/event-stream"}
        async with served.client.http.stream("GET", f"{path}/events?follow=true", headers=head) as answer:
            async for _ in answer.aiter_bytes():
                begun.set()
        return time.monotonic()

    begun = asyncio.Event()
    following = asyncio.create_task(follow())
    await begun.wait()
    other = await sign_in(served.client.http, "alice")
    assert (await other.send("DELETE", "/v1/auth/sessions")).json() == {"ended": 2}
    ended_at = time.monotonic()
    async with asyncio.timeout(5):
        assert await following - ended_at < WITHIN_S


async def test_a_stream_that_ends_by_itself_is_not_disturbed(served: Served) -> None:
    made = await served.client.post("/v1/sandboxes", {})
    path = f"/v1/sandboxes/{made.json()['id']}"
    heard: list[str] = []
    following = asyncio.create_task(listen(served.client, path, heard))
    await eventually(lambda: len(heard) >= 3)
    assert isinstance(served.owner, Credentials)
    await served.client.delete(path)
    async with asyncio.timeout(5):
        await following
    assert "unauthenticated" not in heard


async def test_connections_of_children_are_counted_for_the_account_above_them(served: Served) -> None:
    """Each child had as many as an account of its own: a few of them shut everybody out."""
    team = await funded(served, "team")
    children = [await cut(served, team, slots=1, budget_sats=100) for _ in range(3)]
    counted = served.platform.front._accounts
    async with contextlib.AsyncExitStack() as stack:
        for one in (team, *children):
            # A connection each.
            http = await stack.enter_async_context(httpx.AsyncClient(base_url=served.url))
            assert (await Client(http, one.credentials).get("/v1/sandboxes")).status_code == 200
        assert counted["team"] == 1 + len(children)
