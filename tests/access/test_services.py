"""Services behind the proxy, on real walls: a redeploy under load, private links, an answer that is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import websockets

from tests.support.access import HTTP_SERVER, Proxied, dialled
from tests.support.http.served import eventually

SERVE = {
    "name": "site",
    "command": "exec python3 inside.py $PORT",
    "health": {"interval_s": 0.2},
    "drain_s": 2,
    "resources": {"disk_mb": 128, "memory_mb": 256},
}


async def service(proxied: Proxied, **more: object) -> dict[str, Any]:
    files = [{"path": "inside.py", "content": HTTP_SERVER.read_text()}]
    made = await proxied.served.client.post("/v1/services", {**SERVE, "files": files, **more})
    assert made.status_code == 201, made.text
    found: dict[str, Any] = made.json()
    assert found["state"] == "running", found
    return found


async def redeploy(proxied: Proxied) -> dict[str, Any]:
    done = await proxied.served.client.post("/v1/services/site/redeploy", {"env": {"A": "b"}})
    assert done.status_code == 200, done.text
    found: dict[str, Any] = done.json()
    return found


async def test_a_redeploy_under_load_drops_no_request_no_socket_and_no_stream(proxied: Proxied) -> None:
    host = (await service(proxied, public=True))["host"]
    url, over = f"http://127.0.0.1:{proxied.port}", asyncio.Event()
    seen = {"get": 0, "post": 0, "socket": 0, "stream": 0}

    async def get(http: httpx.AsyncClient) -> None:
        answer = await http.get(f"{url}/page", headers={"host": host})
        assert answer.status_code == 200, answer.text

    async def post(http: httpx.AsyncClient) -> None:
        answer = await http.post(f"{url}/page", content=b"x" * 20_000, headers={"host": host})
        assert (answer.status_code, answer.json()["size"]) == (200, 20_000), answer.text

    async def socket(_: httpx.AsyncClient) -> None:
        async with websockets.connect(f"ws://{host}/socket", sock=dialled(proxied.port)) as line:
            for word in ("one", "two", "three"):
                await line.send(word)
                assert await line.recv() == f"echo {word}"
                await asyncio.sleep(0.1)

    async def stream(http: httpx.AsyncClient) -> None:
        async with http.stream("GET", f"{url}/stream", headers={"host": host}) as events:
            assert events.status_code == 200
            assert [line async for line in events.aiter_lines() if line] == ["data: 0", "data: 1", "data: 2"]

    async def visit(name: str, act: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
        async with httpx.AsyncClient(timeout=30.0) as http:
            while not over.is_set():
                await act(http)
                seen[name] += 1

    async with asyncio.TaskGroup() as group:
        for act in (get, get, post, socket, socket, stream, stream):
            group.create_task(visit(act.__name__, act))
        for run in (2, 3):
            before = dict(seen)
            found = await redeploy(proxied)
            assert (found["state"], found["run"]) == ("running", run)
            await eventually(lambda b=before: all(seen[name] >= b[name] + 3 for name in seen), 60)  # type: ignore[misc]
        over.set()


async def test_the_link_of_a_private_service_outlives_its_redeploys(proxied: Proxied) -> None:
    made = await service(proxied)
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (made["port"], made["public"]) == (8080, False)
    link = {"x-sandboxer-preview": str((await proxied.preview(path, port=8080))["token"])}
    await proxied.preview(path, port=8080)
    hosts = (proxied.host(path, 8080), proxied.host(path, 8081), made["host"])
    first = await proxied.ask(hosts[0], f"/?sandboxer_token={link['x-sandboxer-preview']}")
    cookie = {"cookie": first.headers["set-cookie"].partition(";")[0]}
    for port in (8081, 8080):
        assert (await redeploy(proxied))["port"] == port
        for host in hosts:
            for opened in (link, cookie):
                answer = await proxied.ask(host, "/page", headers=opened)
                assert (answer.status_code, answer.json()["path"]) == (200, "/page"), (port, host, opened)
            assert (await proxied.ask(host)).status_code == 401
        signed = await proxied.served.client.get(f"{path}/ports/8080/page")
        assert signed.status_code == 200, signed.text
    other = {"x-sandboxer-preview": str((await proxied.preview(path, port=9000))["token"])}
    assert (await proxied.ask(hosts[0], headers=other)).status_code == 401


async def test_a_service_that_answers_nonsense_is_a_502_that_says_so(proxied: Proxied) -> None:
    program = (
        "import os, socket\ns = socket.create_server(('127.0.0.1', int(os.environ['PORT'])))\n"
        "while True:\n  c = s.accept()[0]\n  c.settimeout(1)\n  try:\n    c.recv(9999)\n"
        "    c.sendall(b'\\x00\\xff no http at all\\r\\n\\r\\n')\n  except OSError: pass\n  c.close()\n"
    )
    files = [{"path": "inside.py", "content": program}]
    made = await service(proxied, public=True, files=files)
    answer = await proxied.ask(made["host"])
    assert (answer.status_code, answer.json()["code"], answer.json()["fault"]) == (
        502,
        "bad_answer",
        "sandbox",
    ), answer.text
    assert "does not speak HTTP/1.1" in answer.json()["detail"]
