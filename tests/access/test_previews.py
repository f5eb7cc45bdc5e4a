"""Who may knock at a port: tokens, cookies, signatures; and what a request wakes."""

from __future__ import annotations

import asyncio
import socket
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
import websockets

from sandboxer.sandboxes.repository import SandboxRepository
from tests.support.access import Proxied
from tests.support.http.served import eventually

BEARER = "Bearer sk_" + "0" * 52


async def test_a_private_port_opens_to_its_link_and_then_to_a_cookie(proxied: Proxied) -> None:
    path = await proxied.website()
    host = proxied.host(path)
    closed = await proxied.ask(host)
    assert closed.status_code == 401
    assert closed.json()["fault"] == "caller"
    made = await proxied.preview(path, ttl="1h")
    link = urlsplit(str(made["url"]))
    token = parse_qs(link.query)["sandboxer_token"][0]
    assert link.hostname == host
    assert token == made["token"]
    first = await proxied.ask(host, f"/page?a=1&sandboxer_token={token}&b=2")
    assert first.status_code == 303
    assert first.headers["location"] == "/page?a=1&b=2"
    cookie = first.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Lax" in cookie
    assert "Domain" not in cookie
    pair = cookie.partition(";")[0]
    second = await proxied.ask(host, "/page", headers={"cookie": f"theirs=1; {pair}"})
    answer = {name.lower(): value for name, value in second.json()["headers"]}
    assert answer["cookie"] == "theirs=1"
    by_header = await proxied.ask(host, "/", "POST", content=b"x", headers={"x-sandboxer-preview": token})
    assert by_header.status_code == 200
    assert "x-sandboxer-preview" not in by_header.text.lower()
    # Neither is the cookie a link, nor the link a cookie.
    swapped = pair.partition("=")[2]
    assert (await proxied.ask(host, f"/?sandboxer_token={swapped}")).status_code == 401
    assert (await proxied.ask(host, headers={"cookie": f"sandboxer_preview={token}"})).status_code == 401
    gone = await proxied.served.client.delete(f"{path}/previews/{made['id']}")
    assert gone.status_code == 204
    assert (await proxied.ask(host, "/page", headers={"cookie": pair})).status_code == 401
    assert (await proxied.served.client.get(f"{path}/previews")).json() == {"previews": []}


async def test_a_link_ends_with_its_sandbox(proxied: Proxied) -> None:
    mine = await proxied.website()
    head = {"x-sandboxer-preview": str((await proxied.preview(mine))["token"])}
    assert (await proxied.ask(proxied.host(mine), headers=head)).status_code == 200
    await proxied.served.client.delete(mine)
    assert (await proxied.ask(proxied.host(mine), headers=head)).status_code in (401, 404)


async def test_a_token_opens_its_own_port_only(proxied: Proxied) -> None:
    mine, other = await proxied.website(), await proxied.website()
    token = str((await proxied.preview(mine))["token"])
    await proxied.preview(other)
    for host in (proxied.host(mine, 3001), proxied.host(other)):
        answer = await proxied.ask(host, headers={"x-sandboxer-preview": token})
        assert answer.status_code == 401, answer.text
        assert answer.json()["reason"] == "unknown_token"
    spoiled = token[:-1] + ("A" if token[-1] != "A" else "B")
    assert (
        await proxied.ask(proxied.host(mine), headers={"x-sandboxer-preview": spoiled})
    ).status_code == 401


async def test_a_one_time_link_works_once_and_its_browser_goes_on(proxied: Proxied) -> None:
    path = await proxied.website()
    host = proxied.host(path)
    token = (await proxied.preview(path, one_time=True))["token"]
    async with asyncio.TaskGroup() as group:
        tries = [group.create_task(proxied.ask(host, f"/?sandboxer_token={token}")) for _ in range(4)]
    assert sorted(one.result().status_code for one in tries) == [303, 401, 401, 401]
    used = next(one.result() for one in tries if one.result().status_code == 303)
    pair = used.headers["set-cookie"].partition(";")[0]
    assert (await proxied.ask(host, headers={"cookie": pair})).status_code == 200


async def test_by_name_what_names_a_caller_to_the_platform_does_not_reach_the_program(
    proxied: Proxied,
) -> None:
    path = await proxied.website()
    token = str((await proxied.preview(path))["token"])
    link = {"x-sandboxer-preview": token}
    signature = {"x-signature": "0" * 64, "x-nonce": "n" * 20, "x-timestamp": "1"}
    for given in (
        {"authorization": "Bearer sbx-pk-" + "0" * 26, **signature},
        {"authorization": "Bearer v4.local.sealed"},
        {"authorization": BEARER},
        {"sign-in-with-x": "e30="},
    ):
        answer = (await proxied.ask(proxied.host(path), headers={**link, **given})).json()
        assert not set(given) & {name.lower() for name, _ in answer["headers"]}
    # A program's own headers are the program's.
    for word in ("of-its-own", "sk_live_of_its_own", BEARER.removeprefix("Bearer ") + "0"):
        own = {"authorization": f"Bearer {word}", **signature}
        answer = (await proxied.ask(proxied.host(path), headers={**link, **own})).json()
        assert set(own) <= {name.lower() for name, _ in answer["headers"]}


async def test_by_path_a_bearer_token_does_not_reach_a_program_that_may_be_anybodys(proxied: Proxied) -> None:
    path = await proxied.website()
    token = str((await proxied.preview(path))["token"])
    by_link = {"x-sandboxer-preview": token, "authorization": BEARER}
    answer = await proxied.served.client.http.get(f"{path}/ports/3000/", headers=by_link)
    assert "authorization" not in {name.lower() for name, _ in answer.json()["headers"]}
    await proxied.preview(path, public=True)
    answer = await proxied.served.client.http.get(f"{path}/ports/3000/", headers={"authorization": BEARER})
    assert "authorization" not in {name.lower() for name, _ in answer.json()["headers"]}


async def test_by_path_a_port_opens_to_a_signature_and_cannot_act_for_the_platform(proxied: Proxied) -> None:
    path = await proxied.website()
    client = proxied.served.client
    answer = await client.get(f"{path}/ports/3000/a/b?c=1")
    assert answer.status_code == 200, answer.text
    body = answer.json()
    headers = {name.lower(): value for name, value in body["headers"]}
    assert body["path"] == "/a/b?c=1"
    assert headers["x-forwarded-prefix"] == f"{path}/ports/3000"
    assert not {"authorization", "x-signature", "x-nonce", "x-timestamp"} & set(headers)
    assert "set-cookie" not in answer.headers
    assert answer.headers["content-security-policy"].startswith("sandbox")
    # The same connection then serves the API again, and ports again.
    assert (await client.get(path)).status_code == 200
    posted = await client.put(f"{path}/ports/3000/x", b"what was signed")
    assert posted.json()["size"] == len(b"what was signed")
    url = proxied.served.url
    async with httpx.AsyncClient() as http:
        bare = await http.get(f"{url}{path}/ports/3000/")
        assert bare.status_code == 401
        token = str((await proxied.preview(path))["token"])
        assert (await http.get(f"{url}{path}/ports/3000/?sandboxer_token={token}")).status_code == 200
    stranger = await proxied.served.stranger()
    assert (await stranger.get(f"{path}/ports/3000/")).status_code == 404
    request = client.request("PUT", f"{path}/ports/3000/x", content=b"what was signed")
    request.stream = httpx.ByteStream(b"what I wanted!!")
    forged = await client.http.send(request)
    assert forged.status_code == 401
    assert forged.json()["reason"] == "body_mismatch"


async def test_what_is_wrong_says_whose_fault_it_is(proxied: Proxied) -> None:
    path = await proxied.served.sandbox()
    await proxied.preview(path, public=True, hold_s=0)
    nothing = await proxied.ask(proxied.host(path))
    assert (nothing.status_code, nothing.json()["fault"]) == (502, "sandbox")
    unknown = await proxied.ask(f"3000-sbx-{'0' * 26}.box.test")
    assert (unknown.status_code, unknown.json()["fault"]) == (401, "caller")
    assert (await proxied.ask("shop.box.test")).status_code == 404
    assert (await proxied.ask("example.com")).status_code == 421
    garbage = (
        "import socket\ns = socket.create_server(('127.0.0.1', 3000))\nwhile True:\n"
        "    c = s.accept()[0]\n    c.recv(9999)\n    c.sendall(b'SSH-2.0-hello' + bytes([13, 10, 13, 10]))\n"
    )
    await proxied.served.client.post(f"{path}/processes", {"argv": ["python3", "-c", garbage]})
    deadline = asyncio.get_running_loop().time() + 10
    while (answer := await proxied.ask(proxied.host(path))).json()["code"] == "nothing_listens":
        assert asyncio.get_running_loop().time() < deadline
    assert (answer.status_code, answer.json()["code"]) == (502, "bad_answer")


async def test_many_requests_at_once_wake_a_sleeping_sandbox_once(proxied: Proxied) -> None:
    path = await proxied.website()
    made = await proxied.preview(path, public=True)
    dozing = await proxied.preview(path, wakes=False)
    host = proxied.host(path)
    repository = proxied.served.platform.sandboxes.repository
    assert (await proxied.ask(host)).status_code == 200
    for verb in ("freeze", "stop"):
        assert (await proxied.served.client.post(f"{path}/{verb}")).status_code == 200
        if verb == "stop":
            # Nothing starts again by itself here; the address stands all the same.
            async with asyncio.TaskGroup() as group:
                asking = [group.create_task(proxied.ask(host)) for _ in range(4)]
                await eventually(lambda: _state(repository, path) != "stopped", 10.0)
                await proxied.start_inside(path)
        else:
            async with asyncio.TaskGroup() as group:
                asking = [group.create_task(proxied.ask(host)) for _ in range(20)]
        assert {one.result().status_code for one in asking} == {200}
    text = (await proxied.served.client.get(f"{path}/events?follow=false")).text
    assert text.count("system:proxy") == 2, "each sleep ends once"
    await proxied.served.client.delete(f"{path}/previews/{made['id']}")
    await proxied.served.client.post(f"{path}/freeze")
    asleep = await proxied.ask(host, headers={"x-sandboxer-preview": str(dozing["token"])})
    assert asleep.status_code == 503, asleep.text
    assert (asleep.json()["fault"], asleep.json()["state"]) == ("sandbox", "frozen")


def _state(repository: SandboxRepository, path: str) -> str:
    found = repository.peek(path.rsplit("/", 1)[1])
    return "gone" if found is None else found.state.value


async def test_a_stream_ends_with_the_preview_that_opened_it(proxied: Proxied) -> None:
    path = await proxied.website()
    made = await proxied.preview(path)
    sock = socket.create_connection(("127.0.0.1", proxied.port))
    sock.setblocking(False)
    headers = {"x-sandboxer-preview": str(made["token"])}
    uri = f"ws://{proxied.host(path)}/"
    async with websockets.connect(uri, sock=sock, additional_headers=headers) as line:
        await line.send("a")
        assert await line.recv() == "echo a"
        await proxied.served.client.delete(f"{path}/previews/{made['id']}")
        async with asyncio.timeout(5):
            with pytest.raises(websockets.ConnectionClosed):
                await line.recv()


async def test_connections_to_one_sandbox_are_capped_and_the_rest_wait(proxied: Proxied) -> None:
    path = await proxied.website()
    await proxied.preview(path, public=True)
    proxied.proxy.pool.streams = 2
    async with asyncio.TaskGroup() as group:
        asking = [group.create_task(proxied.ask(proxied.host(path), "/stream")) for _ in range(5)]
        await eventually(lambda: sum(proxied.proxy.pool.open_streams.values()) == 2)
    assert {one.result().status_code for one in asking} == {200}
