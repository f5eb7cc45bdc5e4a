"""Ports inside real sandboxes, reached by name through the proxy."""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections.abc import AsyncIterator

import httpx
import websockets

from tests.support.access import Proxied, dialled
from tests.support.http.served import eventually


async def test_a_public_port_answers_by_name_and_says_who_asked(proxied: Proxied) -> None:
    path = await proxied.website()
    await proxied.preview(path, public=True)
    host = proxied.host(path)
    answer = await proxied.ask(
        host,
        "/a%2Fb?q=1",
        headers={"x-forwarded-for": "6.6.6.6", "x_forwarded_for": "6.6.6.6", "x-real-ip": "6.6.6.6"},
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert body["path"] == "/a%2Fb?q=1"
    headers = {name.lower(): value for name, value in body["headers"]}
    assert headers["host"] == host
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert headers["x-forwarded-proto"] == "http"
    assert headers["x-forwarded-host"] == host
    assert "6.6.6.6" not in str(body)


async def test_bodies_pass_whole_in_every_framing(proxied: Proxied) -> None:
    path = await proxied.website()
    await proxied.preview(path, public=True)
    host = proxied.host(path)
    content = bytes(range(256)) * 40_000
    digest = hashlib.sha256(content).hexdigest()
    counted = await proxied.ask(host, "/", "POST", content=content)
    assert counted.json()["sha256"] == digest

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(content), 100_000):
            yield content[at : at + 100_000]

    chunked = await proxied.ask(host, "/", "PUT", content=pieces())
    assert chunked.json()["sha256"] == digest
    assert (await proxied.ask(host, "/chunks")).text == "one two three"
    assert (await proxied.ask(host, "/close")).text == "until the end"
    head = await proxied.ask(host, "/", "HEAD")
    assert (head.status_code, head.content) == (200, b"")
    assert int(head.headers["content-length"]) > 0
    assert len((await proxied.ask(host, "/big")).content) == 64 << 20
    expecting = (
        b"POST / HTTP/1.1\r\nHost: %b\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n" % host.encode()
    )
    assert (await proxied.raw(expecting, until=b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    old = await proxied.raw(b"GET /chunks HTTP/1.0\r\nHost: %b\r\n\r\n" % host.encode())
    assert old.endswith(b"\r\n\r\none two three")
    two = b"GET / HTTP/1.1\r\nHost: %b\r\n\r\n" % host.encode()
    pipelined = await proxied.raw(two + two.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    assert pipelined.count(b"HTTP/1.1 200 OK") == 2


# Whatever the kernel takes for a client who does not read: some of these end where the proxy has too much.
SIZES = range(1_000_000, 7_000_000, 200_000)


async def test_a_port_answers_after_a_client_who_read_slowly(proxied: Proxied) -> None:
    path = await proxied.website()
    await proxied.preview(path, public=True)
    host = proxied.host(path)
    for size in SIZES:
        with slow_reader(proxied) as client:
            words = b"GET /sized?%d HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n"
            client.sendall(words % (size, host.encode()))
            assert await length_of_answer(client) > size
        assert (await proxied.ask(host, "/chunks")).text == "one two three", size


async def test_who_asks_ahead_and_does_not_read_fills_no_memory(proxied: Proxied) -> None:
    path = await proxied.website()
    await proxied.preview(path, public=True)
    host = proxied.host(path).encode()
    for size in SIZES:
        with slow_reader(proxied) as client:
            asked = b"GET /sized?%d HTTP/1.1\r\nHost: %b\r\n\r\nGET /big HTTP/1.1\r\nHost: %b\r\n\r\n"
            client.sendall(asked % (size, host, host))
            assert await held_back(proxied) < 1 << 20, size


def slow_reader(proxied: Proxied) -> socket.socket:
    """A connection for which the kernel keeps little that nobody has read."""
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", proxied.port))
    client.setblocking(False)
    return client


async def length_of_answer(client: socket.socket) -> int:
    length = 0
    async with asyncio.timeout(60):
        while piece := await asyncio.get_running_loop().sock_recv(client, 1 << 16):
            length += len(piece)
    return length


async def held_back(proxied: Proxied) -> int:
    """Bytes that the proxy holds for clients who do not read, once it gets no more of them."""
    before, held = 0, 0
    async with asyncio.timeout(60):
        while not held or held != before:
            before = held
            await asyncio.sleep(0.05)
            held = sum(client.transport.get_write_buffer_size() for client in proxied.proxy.connections)
    return held


async def test_events_arrive_as_they_happen_and_websockets_pass(proxied: Proxied) -> None:
    path = await proxied.website()
    await proxied.preview(path, public=True)
    host = proxied.host(path)
    seen: list[float] = []
    async with (
        httpx.AsyncClient() as http,
        http.stream("GET", f"http://127.0.0.1:{proxied.port}/stream", headers={"host": host}) as stream,
    ):
        async for line in stream.aiter_lines():
            if line:
                seen.append(time.monotonic())
    assert len(seen) == 3
    assert seen[2] - seen[0] > 0.4
    async with websockets.connect(f"ws://{host}/socket", sock=dialled(proxied.port)) as line:
        await line.send("hello")
        assert await line.recv() == "echo hello"
        await line.send(b"\x00" * 1000)
        assert await line.recv() == b"echo " + b"\x00" * 1000


async def test_an_open_request_is_work_and_its_bytes_are_counted(proxied: Proxied) -> None:
    path = await proxied.website()
    await proxied.preview(path, public=True)
    sandbox_id = path.rsplit("/", 1)[1]
    activity = proxied.served.platform.sandboxes.activity
    async with asyncio.TaskGroup() as group:
        slow = group.create_task(proxied.ask(proxied.host(path), "/slow"))
        await eventually(lambda: activity.pulse(sandbox_id).open_lines > 0)
    assert slow.result().status_code == 200
    traffic = proxied.served.platform.access.ports.passages.traffic(sandbox_id)
    assert traffic.requests == 1
    assert traffic.ingress > 50
    assert traffic.egress > 100
    await eventually(lambda: activity.pulse(sandbox_id).open_lines == 0)
