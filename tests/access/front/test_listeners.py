"""The same attacks on every HTTP listener: the API's, and the one for ports of sandboxes.

What is asked for does not exist, or is asked for without a key: every refusal here happens at the front.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import resource
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import uvloop

from sandboxer.access.connections import Patience
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.edges.front.acceptor import Silent
from sandboxer.edges.http.server import listen
from sandboxer.edges.proxy.host_door import listen_for_hosts, open_proxy
from sandboxer.settings import Settings
from tests.support.access import SMUGGLED
from tests.support.http.served import Served, eventually, serving

HOST = b"3000-sbx-01hzzzzzzzzzzzzzzzzzzzzzzz.localhost"
BEGIN = b"GET /health HTTP/1.1\r\nHost: " + HOST + b"\r\n"
STATUS = re.compile(rb"HTTP/1\.1 \d")
SHORT = Patience(first_byte_s=1.0, idle_s=1.0, head_s=1.0, body_s=1.0, reader_s=1.5, closing_s=1.0)


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loop that serves: its transports differ from asyncio's own."""
    return {"uvloop": uvloop.new_event_loop}


@dataclass
class Listener:
    served: Served
    port: int

    async def raw(self, data: bytes, *, seconds: float = 10.0, local: str | None = None) -> bytes:
        """Everything that comes back for these very bytes."""
        address = None if local is None else (local, 0)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=address)
        try:
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
            got = b""
            async with asyncio.timeout(seconds):
                with contextlib.suppress(ConnectionError):
                    while piece := await reader.read(65536):
                        got += piece
            return got
        finally:
            writer.close()


@pytest.fixture(params=["api", "ports"])
async def listener(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Listener]:
    more = getattr(request.function, "settings", {})
    settings = Settings(state_dir=tmp_path / "state", host="127.0.0.1", port=0, charging=False, **more)
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as served:
        served.platform.front.patience = getattr(request.function, "patience", Patience())
        if request.param == "api":
            yield Listener(served, int(served.url.rsplit(":", 1)[1]))
            return
        listening = listen("127.0.0.1", 0)
        async with (
            open_proxy(served.platform) as proxy,
            listen_for_hosts(served.platform, proxy, listening),
        ):
            yield Listener(served, listening.getsockname()[1])


def with_(**attributes: object) -> Callable[[Callable[..., object]], Callable[..., object]]:
    """Settings and patience of the platform that this test attacks."""

    def mark(function: Callable[..., object]) -> Callable[..., object]:
        function.__dict__.update(attributes)
        return function

    return mark


async def test_what_two_readers_could_read_in_two_ways_is_refused(listener: Listener) -> None:
    follower = b"GET /health HTTP/1.1\r\nHost: " + HOST + b"\r\n\r\n"
    for name, rest in SMUGGLED.items():
        answer = await listener.raw(b"POST /health HTTP/1.1\r\nHost: " + HOST + b"\r\n" + rest + follower)
        assert answer.startswith(b"HTTP/1.1 4"), (name, answer)
        assert len(STATUS.findall(answer)) == 1, (name, answer)
        if "chunk" not in name and "trailer" not in name:
            assert answer.startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 417 ")), (name, answer)
    for line in (
        b"GET  / HTTP/1.1",
        b"GET / HTTP/2.0",
        b"GET /",
        b"GET /\x00 HTTP/1.1",
        b"GE(T / HTTP/1.1",
        b"GET http://example.com/ HTTP/1.1",
        b"CONNECT example.com:443 HTTP/1.1",
    ):
        answer = await listener.raw(line + b"\r\nHost: " + HOST + b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 "), (line, answer)


async def test_heads_that_are_too_big_or_too_many_are_refused(listener: Listener) -> None:
    assert (await listener.raw(BEGIN + b"X-A: " + b"a" * 80_000 + b"\r\n\r\n")).startswith(b"HTTP/1.1 431 ")
    assert (await listener.raw(BEGIN + b"X-A: 1\r\n" * 500 + b"\r\n")).startswith(b"HTTP/1.1 431 ")
    assert (await listener.raw(BEGIN + b"X" * 200_000)).startswith(b"HTTP/1.1 431 ")
    long = b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: " + HOST + b"\r\n\r\n"
    assert (await listener.raw(long)).startswith((b"HTTP/1.1 414 ", b"HTTP/1.1 431 "))


async def test_a_head_without_end_costs_no_memory(listener: Listener) -> None:
    """60 MB of headers, and a URL of 24 MB: nobody reads on once it is too much."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for piece in (b"X-A: " + b"a" * 1000 + b"\r\n", b"a" * 1000):
        begin = BEGIN if piece.startswith(b"X") else b"GET /"
        _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
        sent = 0
        with contextlib.suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(10):
                writer.write(begin)
                for _ in range(600):
                    writer.write(piece * 100)
                    await writer.drain()
                    sent += len(piece) * 100
        writer.close()
        assert sent < 16 << 20, "it was read to its end"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


@with_(patience=SHORT)
async def test_the_silent_and_the_slow_are_sent_away(listener: Listener) -> None:
    async with asyncio.TaskGroup() as group:
        silent = group.create_task(listener.raw(b""))
        half = group.create_task(listener.raw(BEGIN))
        dripping = group.create_task(_drip(listener.port, BEGIN))
        between = group.create_task(listener.raw(BEGIN + b"\r\n"))
    assert silent.result() == b""
    assert half.result().startswith(b"HTTP/1.1 408 ")
    assert dripping.result().startswith(b"HTTP/1.1 408 ")
    assert len(STATUS.findall(between.result())) == 1
    await eventually(lambda: not _others(listener))


@with_(settings={"connections_per_address": 16})
async def test_one_address_cannot_take_more_than_its_share(listener: Listener) -> None:
    front = listener.served.platform.front
    silent = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(100)]
    await eventually(lambda: len(front.slots) <= 17)
    # A newcomer is served, from the same address and from another one.
    for local in ("127.0.0.1", "127.0.0.2"):
        assert (await listener.raw(BEGIN + b"Connection: close\r\n\r\n", local=local)).startswith(
            b"HTTP/1.1 "
        )
    for _, writer in silent:
        writer.close()


async def test_nothing_is_made_for_a_connection_before_its_first_byte(listener: Listener) -> None:
    front = listener.served.platform.front
    made = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(50)]
    await eventually(lambda: len(front.slots) == 50)
    assert all(isinstance(slot.holder, Silent) for slot in front.slots)
    reader, writer = made[0]
    writer.write(BEGIN + b"\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 ")
    assert [isinstance(slot.holder, Silent) for slot in front.slots].count(False) == 1
    for _, writer in made:
        writer.close()
    await eventually(lambda: not front.slots)


@with_(settings={"connections_per_address": 16})
async def test_the_longest_silent_is_reset_when_a_newcomer_needs_its_place(listener: Listener) -> None:
    made = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(20)]
    for reader, _ in made[:4]:
        with pytest.raises(ConnectionResetError):
            await asyncio.wait_for(reader.read(1), 10)
    assert len(listener.served.platform.front.slots) == 16
    for _, writer in made:
        writer.close()


@with_(settings={"connections": 64, "connections_per_address": 8})
async def test_many_silent_addresses_together_lock_nobody_out(listener: Listener) -> None:
    made = [
        await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(f"127.0.1.{n}", 0))
        for n in range(1, 200)
    ]
    async with httpx.AsyncClient(timeout=10.0) as http:
        served = await http.get(f"{listener.served.url}/health")
    assert served.status_code == 200
    assert len(listener.served.platform.front.slots) <= 64
    for _, writer in made:
        writer.close()


@with_(settings={"connections": 64})
async def test_who_signed_stays_while_the_silent_go(listener: Listener) -> None:
    client = listener.served.client
    assert (await client.get("/v1/sandboxes")).status_code == 200
    silent = [
        await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(f"127.0.1.{n}", 0))
        for n in range(1, 200)
    ]
    known = [slot for slot in listener.served.platform.front.slots if slot.account is not None]
    assert len(known) == 1
    assert (await client.get("/v1/sandboxes")).status_code == 200
    assert known[0].is_inside, "its connection was taken for a silent one"
    for _, writer in silent:
        writer.close()


@with_(settings={"limit_refusals": 20})
async def test_an_address_that_is_refused_over_and_over_waits(listener: Listener) -> None:
    """Thousands of refusals a second kept both processors busy, and everybody waited for those."""
    loop, client = asyncio.get_running_loop(), listener.served.client
    assert (await client.get("/v1/sandboxes")).status_code == 200

    async def seconds(data: bytes, status: bytes, local: str | None = None) -> float:
        began = loop.time()
        assert (await listener.raw(data, local=local)).startswith(b"HTTP/1.1 " + status)
        return loop.time() - began

    bad, good = b"GET / HTTP/2.0\r\n\r\n", BEGIN + b"Connection: close\r\n\r\n"
    for _ in range(20):
        await seconds(bad, b"400 ")
    # Each costs three seconds, and nobody waits for longer than two.
    await seconds(bad, b"400 ")
    assert await seconds(bad, b"400 ") > 1.0
    assert await seconds(good, b"", local="127.0.0.2") < 1.0
    # Whoever is known does not wait for what others do at the same address.
    began = loop.time()
    assert (await client.get("/v1/sandboxes")).status_code == 200
    assert loop.time() - began < 1.0


def _others(listener: Listener) -> list[object]:
    return [slot for slot in listener.served.platform.front.slots if slot.account is None]


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


@pytest.mark.parametrize("listener", ["ports"], indirect=True)
@with_(settings={"limit_port_refusals": 5})
async def test_whoever_guesses_names_of_ports_is_counted_by_address(listener: Listener) -> None:
    """Each guess costs a look-up: of private ports, of services, and of domains that lead nowhere."""
    names = [HOST, b"some-service.localhost", b"customer.example"]
    refused = [
        await listener.raw(b"GET / HTTP/1.1\r\nHost: " + names[turn % 3] + b"\r\nConnection: close\r\n\r\n")
        for turn in range(6)
    ]
    assert [answer[9:12] for answer in refused] == [b"401", b"404", b"421", b"401", b"404", b"429"]
    other = await listener.raw(b"GET / HTTP/1.1\r\nHost: customer.example\r\n\r\n", local="127.0.0.2")
    assert other.startswith(b"HTTP/1.1 421 ")
