"""Connections that carry many requests, and WebSockets: as quick as they may be, and judged one by one."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandboxer.access.egress.proxy.dialer import Patience
from sandboxer.access.egress.rules import Action, Injection, Rule
from tests.access.egress.world import ADDRESS, certified, listening
from tests.support.egress import Call, Proxy, connect
from tests.support.http.served import eventually

EVIL = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"
KEY = "dGhlIHNhbXBsZSBub25jZQ=="
UPGRADE = (
    "GET http://example.com/chat HTTP/1.1\r\nHost: example.com\r\nConnection: Upgrade\r\n"
    f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n\r\n"
).encode()


@dataclass
class Keeping:
    """A site that keeps its connections, and what came by each of them."""

    heads: list[list[bytes]] = field(default_factory=list)
    body: bytes = b"Content-Length: 5\r\n\r\nhello"
    # Hangs up without a word after that many answers.
    patience: int = 1000

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads: list[bytes] = []
        self.heads.append(heads)
        try:
            for _ in range(self.patience):
                head = await reader.readuntil(b"\r\n\r\n")
                heads.append(head)
                if b"Upgrade: websocket" in head:
                    await self._chat(head, reader, writer)
                    return
                writer.write(b"HTTP/1.1 200 OK\r\n" + self.body)
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _chat(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0]
        proof = base64.b64encode(hashlib.sha1(key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest())
        if b"/liar" in head:
            proof = b"x"
        writer.write(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: " + proof + b"\r\n\r\n"
        )
        while data := await reader.read(1000):
            writer.write(data.upper())


@asynccontextmanager
async def keeping(port: int = 80, tls: ssl.SSLContext | None = None) -> AsyncIterator[Keeping]:
    made = Keeping()
    server = await asyncio.start_server(made.serve, sock=listening(ADDRESS, port), ssl=tls)
    try:
        yield made
    finally:
        server.close()


def get(path: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} http://example.com{path} HTTP/1.1", "Host: example.com", *headers, "", ""]
    return "\r\n".join(lines).encode()


async def one(call: Call, request: bytes) -> bytes:
    call.writer.write(request)
    head = await call.head()
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return head + await call.reader.readexactly(length)


async def test_one_connection_carries_many_requests_on_both_sides(proxy: Proxy) -> None:
    async with keeping() as web:
        call = await proxy.call()
        for at in range(5):
            assert (await one(call, get(f"/{at}"))).endswith(b"hello")
        assert [len(heads) for heads in web.heads] == [5]
        # Another connection from inside finds the one to the world, if it is for the same host.
        other = await proxy.call()
        assert (await one(other, get("/5"))).endswith(b"hello")
        assert [len(heads) for heads in web.heads] == [6]
        assert len(proxy.outlet.idle) == 1
        assert not proxy.outlet.flows
    proxy.rules("example.com")
    assert len(proxy.outlet.idle) == 0


async def test_a_request_that_changes_something_gets_a_connection_of_its_own(proxy: Proxy) -> None:
    """It could not be sent again if a kept one had just hung up."""
    async with keeping() as web:
        call = await proxy.call()
        await one(call, get("/"))
        await one(call, get("/", "Content-Length: 0", method="POST"))
        assert [len(heads) for heads in web.heads] == [1, 1]


async def test_a_kept_connection_that_hung_up_is_not_felt(proxy: Proxy) -> None:
    async with keeping() as web:
        web.patience = 1
        call = await proxy.call()
        for at in range(3):
            assert (await one(call, get(f"/{at}"))).endswith(b"hello")
        assert [len(heads) for heads in web.heads] == [1, 1, 1]


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 5\r\n\r\nhello" + EVIL,
        b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n" + EVIL,
    ],
)
async def test_an_answer_behind_the_answer_is_nobodys(proxy: Proxy, body: bytes) -> None:
    """Otherwise it would be taken for the answer to the next request."""
    async with keeping() as web:
        web.body = body
        call = await proxy.call()
        for _ in range(2):
            call.writer.write(get("/"))
            assert (await call.head()).startswith(b"HTTP/1.1 200 ")
            await call.reader.readuntil(b"hello")
            if b"chunked" in body:
                assert await call.reader.readuntil(b"0\r\n\r\n")
        assert [len(heads) for heads in web.heads] == [1, 1]
        call.writer.write_eof()
        assert await call.read() == b""


async def test_a_body_in_chunks_ends_where_it_says_and_the_next_request_is_read(proxy: Proxy) -> None:
    async with keeping() as web:
        web.body = b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nhe\r\n3\r\nllo\r\n0\r\nX-Trailer: 1\r\n\r\n"
        call = await proxy.call()
        for _ in range(2):
            call.writer.write(get("/"))
            assert b"Transfer-Encoding: chunked" in await call.head()
            got = await call.reader.readuntil(b"0\r\n\r\n")
            assert b"X-Trailer" not in got
            assert b";x=y" not in got
        assert [len(heads) for heads in web.heads] == [2]
        # Who speaks HTTP/1.0 has never heard of chunks.
        old = await proxy.ask(b"GET http://example.com/ HTTP/1.0\r\nHost: example.com\r\n\r\n")
        assert old.endswith(b"\r\n\r\nhello")


async def test_each_request_of_a_connection_is_judged_and_a_refusal_ends_it(proxy: Proxy) -> None:
    async with keeping() as web:
        call = await proxy.call()
        await one(call, get("/"))
        proxy.rules("other.com")
        refused = await one(call, get("/again"))
        assert refused.startswith(b"HTTP/1.1 403 ")
        assert await call.read() == b""
    assert [len(heads) for heads in web.heads] == [1]


async def test_a_connection_that_rests_leaves_its_place(proxy: Proxy) -> None:
    async with keeping():
        call = await proxy.call()
        await one(call, get("/"))
        await eventually(lambda: len(proxy.outlet.resting) == 1)
        proxy.outlet.make_room()
        assert await call.read() == b""
    proxy.patience = Patience(next_s=0.2)
    async with keeping():
        call = await proxy.call()
        await one(call, get("/"))
        assert await call.read() == b""


async def test_a_program_that_asks_without_reading_does_not_fill_the_host(proxy: Proxy) -> None:
    async with keeping() as web:
        web.body = b"Content-Length: 100000\r\n\r\n" + b"x" * 100_000
        call = await proxy.call()
        call.reader._transport.pause_reading()  # type: ignore[attr-defined]
        call.writer.write(get("/") * 200)
        await eventually(lambda: bool(web.heads and len(web.heads[0]) > 2))
        before = -1
        while before != proxy.outlet.received:
            before = proxy.outlet.received
            await asyncio.sleep(0.2)
        assert sum(len(heads) for heads in web.heads) < 50
        call.reader._transport.resume_reading()  # type: ignore[attr-defined]
        call.writer.write_eof()
        assert len(await call.read(30)) > 200 * 100_000


async def test_a_plain_websocket_goes_through_where_the_rules_allow_it(proxy: Proxy) -> None:
    async with keeping() as web:
        call = await proxy.call()
        call.writer.write(UPGRADE + b"early ")
        head = await call.head()
        assert head.startswith(b"HTTP/1.1 101 ")
        assert b"Upgrade: websocket\r\n" in head
        assert await call.reader.readexactly(6) == b"EARLY "
        call.writer.write(b"hello")
        assert await call.reader.readexactly(5) == b"HELLO"
        assert len(proxy.outlet.flows) == 1
        proxy.rules("other.com")
        assert await call.read(5) == b""
        assert proxy.denied() == [("example.com", "rules_changed")]
        assert (await proxy.ask(UPGRADE)).startswith(b"HTTP/1.1 403 ")
    assert len(web.heads) == 1


async def test_who_only_says_that_it_switched_gets_no_tunnel(proxy: Proxy) -> None:
    async with keeping() as web:
        answer = await proxy.ask(UPGRADE.replace(b"/chat", b"/liar"))
        assert answer.startswith(b"HTTP/1.1 502 "), answer
        # Another protocol than WebSocket is not even asked for.
        await proxy.ask(UPGRADE.replace(b"websocket", b"h2c"))
        assert b"pgrade" not in web.heads[1][0]


@pytest.fixture
async def opened(proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Keeping]:
    """A site over TLS that the host trusts, whose TLS the rules have opened."""
    context = certified(tmp_path, "example.com")
    # It would rather speak HTTP/2, as most of the world does.
    context.set_alpn_protocols(["h2", "http/1.1"])
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    proxy.vault["somebody/KEY"] = "s3cret"
    secret = Injection(host="example.com", header="X-Key", secret="KEY")
    proxy.rules(
        "example.com", more=(Rule(action=Action.DENY, host="example.com", path="/no"),), secrets=(secret,)
    )
    async with keeping(443, context) as made:
        yield made


async def shaken(proxy: Proxy) -> Call:
    call = await proxy.call()
    call.writer.write(connect("example.com:443"))
    await call.head()
    assert proxy.outlet.authority is not None
    context = ssl.create_default_context(cadata=proxy.outlet.authority.certificate_pem.decode())
    await call.writer.start_tls(context, server_hostname="example.com")
    return call


async def test_each_request_in_opened_tls_is_judged_and_gets_its_secret(
    proxy: Proxy, opened: Keeping
) -> None:
    call = await shaken(proxy)
    for path in ("/a", "/b"):
        assert (await one(call, f"GET {path} HTTP/1.1\r\nHost: example.com\r\n\r\n".encode())).endswith(
            b"hello"
        )
    assert (await one(call, b"GET /no HTTP/1.1\r\nHost: example.com\r\n\r\n")).startswith(b"HTTP/1.1 403 ")
    assert await call.read() == b""
    assert [len(heads) for heads in opened.heads] == [2]
    assert all(b"X-Key: s3cret\r\n" in head for head in opened.heads[0])


async def test_a_websocket_in_opened_tls_goes_through(proxy: Proxy, opened: Keeping) -> None:
    call = await shaken(proxy)
    call.writer.write(UPGRADE.replace(b"http://example.com/", b"/"))
    assert (await call.head()).startswith(b"HTTP/1.1 101 ")
    call.writer.write(b"hello")
    assert await call.reader.readexactly(5) == b"HELLO"
    assert b"X-Key: s3cret\r\n" in opened.heads[0][0]


async def test_a_client_that_would_speak_http2_falls_back_in_opened_tls(
    proxy: Proxy, opened: Keeping, tmp_path: Path
) -> None:
    assert proxy.outlet.authority is not None
    authority = tmp_path / "inside.pem"
    authority.write_bytes(proxy.outlet.authority.certificate_pem)
    async with proxy.listening() as port:
        words = ["curl", "-sS", "--http2", "--max-time", "20", "--cacert", str(authority)]
        words += ["-x", f"http://127.0.0.1:{port}", "-w", "%{http_version}", "https://example.com/"]
        curl = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
        said, _ = await curl.communicate()
    assert said == b"hello1.1"
    assert opened.heads[0][0].startswith(b"GET / HTTP/1.1\r\n")
