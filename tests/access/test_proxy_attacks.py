"""Attacks on the proxy: by those who ask, and by what answers inside."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from sandboxer.access.connections import Patience
from tests.support.access import SMUGGLED, Proxied, proxying
from tests.support.http.served import Served


@pytest.fixture
async def site(proxied: Proxied) -> tuple[Proxied, bytes]:
    path = await proxied.website()
    await proxied.preview(path, public=True)
    return proxied, proxied.host(path).encode()


async def test_what_two_readers_could_read_in_two_ways_is_refused(site: tuple[Proxied, bytes]) -> None:
    proxied, host = site
    passed = proxied.served.platform.access.ports.passages
    for name, rest in SMUGGLED.items():
        follower = b"GET /smuggled HTTP/1.1\r\nHost: %b\r\n\r\n" % host
        answer = await proxied.raw(b"POST / HTTP/1.1\r\nHost: %b\r\n" % host + rest + follower)
        assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 417 ")), (name, answer)
        assert b"HTTP/1.1 2" not in answer, (name, answer)
    lines = [
        b"GET  / HTTP/1.1",
        b"GET / HTTP/2.0",
        b"GET /",
        b"GET /\x00 HTTP/1.1",
        b"GE(T / HTTP/1.1",
        b"GET http://example.com/ HTTP/1.1",
        b"CONNECT example.com:443 HTTP/1.1",
        b"GET @127.0.0.1/ HTTP/1.1",
    ]
    for line in lines:
        answer = await proxied.raw(line + b"\r\nHost: %b\r\n\r\n" % host)
        assert answer.startswith(b"HTTP/1.1 400 "), (line, answer)
    sandbox_id = "sbx_" + host.decode().split("-")[2].split(".")[0]
    # Bad chunks are seen once the request is under way; nothing of what followed became a request.
    assert passed.traffic(sandbox_id).requests <= len(SMUGGLED)
    assert (await proxied.ask(host.decode())).status_code == 200


async def test_no_spelling_of_a_name_leads_anywhere_else(site: tuple[Proxied, bytes]) -> None:
    """A name stands for a port inside one sandbox or for nothing: another host cannot be said."""
    proxied, host = site
    label = host.decode().partition(".")[0]
    api = proxied.served.url.rsplit(":", 1)[1]
    for name in (
        "127.0.0.1",
        f"127.0.0.1:{api}",
        "localhost",
        "[::1]",
        "169.254.169.254",
        "box.test",
        f"{label}.box.test.evil.example",
        f"x.{label}.box.test",
        f"{label}..box.test",
        f"0{label}.box.test",
        f"99999-{label.partition('-')[2]}.box.test",
        f"-{label.partition('-')[2]}.box.test",
    ):
        answer = await proxied.ask(name)
        assert answer.status_code in (400, 404, 421), (name, answer.status_code)
        assert "uptime" not in answer.text
    for spoiled in (f"{label}.box.test@127.0.0.1", f"{label}.box.test/x", f"{label}.box.test\t", ""):
        answer = await proxied.raw(b"GET / HTTP/1.1\r\nHost: %b \x01\r\n\r\n" % spoiled.encode())
        assert answer.startswith(b"HTTP/1.1 400 "), spoiled
    # The API does not listen inside: the same number there is another port.
    inside = await proxied.ask(f"{api}-{label.partition('-')[2]}.box.test")
    assert inside.status_code == 401
    for upper in (
        label.upper() + ".BOX.TEST",
        label + ".box.test.",
        label.replace("sbx-", "sbx_") + ".box.test:80",
    ):
        assert (await proxied.ask(upper)).status_code == 200, upper


async def test_a_path_cannot_leave_its_port(site: tuple[Proxied, bytes]) -> None:
    proxied, host = site
    client, url = proxied.served.client, proxied.served.url
    sandbox_id = "sbx_" + host.decode().split("-")[2].split(".")[0]
    for target in (
        f"/v1/sandboxes/{sandbox_id}/ports/3000/../../../../health",
        f"/v1/sandboxes/{sandbox_id}/ports/3000/%2e%2e/%2e%2e/exec",
    ):
        raw = await _raw_api(url, f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        # It is the program inside that is asked for the strange path, nobody else.
        assert b"X-Forwarded-Prefix" in raw, raw
    for target in (
        f"/v1/sandboxes/{sandbox_id}/ports/03000/",
        f"/v1/sandboxes/{sandbox_id}/ports/0/",
        f"/v1/sandboxes/{sandbox_id}/ports/65536/",
        f"/v1/sandboxes/{sandbox_id}/ports/3000:80/",
        f"/v1/sandboxes/{sandbox_id}%2Fports/3000/",
        f"/v1/sandboxes/{sandbox_id}/ports/127.0.0.1:3000/",
        f"//v1/sandboxes/{sandbox_id}/ports/3000/",
    ):
        answer = await client.get(target)
        assert answer.status_code in (401, 403, 404, 405, 422), (target, answer.status_code)
        assert "X-Forwarded" not in answer.text


async def test_heads_that_are_too_big_or_too_many_are_refused(site: tuple[Proxied, bytes]) -> None:
    proxied, host = site
    begin = b"GET / HTTP/1.1\r\nHost: %b\r\n" % host
    assert (await proxied.raw(begin + b"X-A: " + b"a" * 40_000 + b"\r\n\r\n")).startswith(b"HTTP/1.1 431 ")
    assert (await proxied.raw(begin + b"X-A: 1\r\n" * 500 + b"\r\n")).startswith(b"HTTP/1.1 431 ")
    assert (await proxied.raw(begin + b"X" * 200_000)).startswith(b"HTTP/1.1 431 ")
    long = b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\nHost: %b\r\n\r\n" % host
    assert (await proxied.raw(long)).startswith(b"HTTP/1.1 414 ")


async def test_whoever_is_slow_is_sent_away(real: Served) -> None:
    patience = Patience(first_byte_s=1.0, idle_s=1.0, head_s=1.0, body_s=1.0, answer_s=1.5, reader_s=1.5)
    async with proxying(real, patience) as proxied:
        path = await proxied.website()
        await proxied.preview(path, public=True)
        host = proxied.host(path).encode()
        begin = b"POST / HTTP/1.1\r\nHost: %b\r\n" % host
        async with asyncio.TaskGroup() as group:
            silent = group.create_task(proxied.raw(b""))
            dripping = group.create_task(_drip(proxied.port, begin))
            half = group.create_task(proxied.raw(begin + b"Content-Length: 9\r\n\r\nx"))
            waiting = group.create_task(proxied.raw(b"GET /slow HTTP/1.1\r\nHost: %b\r\n\r\n" % host))
            greedy = group.create_task(_never_reads(proxied.port, host))
        assert silent.result() == b""
        assert dripping.result().startswith(b"HTTP/1.1 408 ")
        assert half.result().startswith(b"HTTP/1.1 408 ")
        assert waiting.result().startswith(b"HTTP/1.1 504 ")
        assert greedy.result() < 64 << 20


async def test_answers_that_are_no_answers_reach_nobody(proxied: Proxied) -> None:
    """The program inside is hostile as well: it must not speak for itself twice, or for another."""
    path = await proxied.served.sandbox()
    program = (
        "import socket, threading\ns = socket.create_server(('127.0.0.1', 3000))\n"
        "def serve(c):\n  while q := c.recv(9999):\n    q = q.split(b' ')[1][1:].decode()\n"
        "    c.sendall(b'HTTP/1.1 200 OK\\r\\nA: ' + b'a' * 40000 if q == 'long' else bytes.fromhex(q))\n"
        "while True:\n  threading.Thread(target=serve, args=(s.accept()[0],)).start()\n"
    )
    await proxied.served.client.post(f"{path}/processes", {"argv": ["python3", "-c", program]})
    await proxied.preview(path, public=True, hold_s=10)
    host = proxied.host(path)

    async def said(answer: bytes) -> httpx.Response:
        return await proxied.ask(host, "/" + answer.hex())

    assert (await said(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")).text == "ok"
    for bad in (
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok!",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        b"HTTP/0.9 200 OK\r\n\r\n",
    ):
        answer = await said(bad)
        assert answer.status_code == 502, bad[:80]
        assert answer.json()["fault"] == "sandbox"
    assert (await proxied.ask(host, "/long")).status_code == 502
    # A second answer that nobody asked for is not given to the next who asks.
    double = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert (await said(double + double.replace(b"ok", b"NO"))).text == "ok"
    assert (await said(double)).text == "ok"


async def _drip(port: int, data: bytes) -> bytes:
    """One byte at a time, never quite idle."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for byte in data * 100:
            writer.write(bytes([byte]))
            try:
                async with asyncio.timeout(0.1):
                    return await reader.read(65536)
            except TimeoutError:
                continue
        return b"never sent away"
    finally:
        writer.close()


async def _never_reads(port: int, host: bytes) -> int:
    """Bytes that the proxy wrote to a client that took almost none, before it gave up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    writer.write(b"GET /big HTTP/1.1\r\nHost: %b\r\n\r\n" % host)
    got = len(await reader.read(1024))
    await asyncio.sleep(5)
    try:
        while piece := await reader.read(65536):
            got += len(piece)
    except ConnectionError:
        pass
    writer.close()
    return got


async def _raw_api(url: str, request: str) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rsplit(":", 1)[1]))
    writer.write(request.encode())
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    return answer
