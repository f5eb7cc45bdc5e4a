"""E2B's own Python client against this platform, and against servers that only pretend.

The same client talks to both by the pair of addresses, so that what it costs by itself is in both figures.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bench import bwrap
from bench.client import Wire
from bench.measurements import Bar, Row, Samples, Skipped
from bench.platform import Running
from bench.scenarios.life import WARM_UP, Measured, timed
from bench.scenarios.transfer import bare_server
from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b import api_key_of

# A hundred sandboxes of E2B's size promise more than a small host has, and all come from one account.
SETTINGS = {
    "charging": "false",
    "overcommit_memory": "100",
    "overcommit_disk": "100",
    "overcommit_cpu": "1000",
    "overcommit_pids": "100",
    "limit_bucket_only": "1000000",
    "limit_address": "1000000",
}
WARM_POOL = '{"profile.e2b": 4}'
SIZE_MB = 100
ECHO = "/bin/echo hi"
PROFILE = "profile.e2b"
Options = dict[str, Any]


def e2b(running: Running, image: Path, rounds: int, *, count: int = 100) -> Iterator[Row | Samples | Skipped]:
    if find_spec("e2b") is None:
        yield Skipped("clients of E2B", "e2b is not installed (make dev)")
        return
    # Only now: a platform has it not, and the other scenarios do without.
    theirs = import_module("e2b")
    here = _options(running.key.url, _api_key(running))
    with bare_server(running) as port:
        there = _options(f"http://127.0.0.1:{port}", here["api_key"])
        yield from _lives(theirs.Sandbox, running, here, there, image, rounds)
        yield from _transfers(theirs.Sandbox, here, there, min(rounds, 10))
    yield _crowds(theirs.AsyncSandbox, running, here, min(rounds, 5), count)


def e2b_warm(running: Running, image: Path, rounds: int) -> Iterator[Row | Samples]:
    """The same lives where sandboxes of this kind stand ready; nothing where the client is not installed."""
    if find_spec("e2b") is None:
        return
    here = _options(running.key.url, _api_key(running))
    with bare_server(running) as port:
        there = _options(f"http://127.0.0.1:{port}", here["api_key"])
        yield from _lives(import_module("e2b").Sandbox, running, here, there, image, rounds, which=", warm")


def _options(url: str, api_key: str) -> Options:
    return {"api_key": api_key, "api_url": f"{url}/e2b", "sandbox_url": f"{url}/e2b/envd"}


def _api_key(running: Running) -> str:
    with Sandboxer(owner_file=running.owner_file, url=running.key.url) as owner:
        made = owner.keys.create("bench", "bench")
        return api_key_of(owner.keys.issue_bearer(made.public_key).bearer_token)


def _lives(
    sandboxes: Any,
    running: Running,
    here: Options,
    there: Options,
    image: Path,
    rounds: int,
    *,
    which: str = "",
) -> Iterator[Row | Samples]:
    measured = Measured()
    floor = bwrap.argv(image)
    wire = running.wire()
    for number in range(WARM_UP + rounds):
        if number == WARM_UP:
            measured.clear()
        _wait_until_it_rests(wire)
        measured.add("bwrap", bwrap.life_ms(floor))
        for name, options in (("pretended", there), ("here", here)):
            _life(sandboxes, options, name, measured)
    yield Row(
        figure=f"create + run + kill through E2B's client{which}",
        subject=measured.samples("here: create + run + kill"),
        baseline=measured.samples("pretended: create + run + kill"),
        bar=Bar(text="≤ 2 × against a server that does nothing", limit=2.0),
    )
    yield Row(
        figure=f"create → first output through E2B's client{which}",
        subject=measured.samples("here: first output"),
        baseline=measured.samples("bwrap"),
        bar=Bar(text="≤ 5.7 × bwrap (40 ms where that takes 7)", limit=40 / 7),
    )
    for name in measured.values:
        if ": " in name:
            yield Samples(name + which, "ms", measured.samples(name).values)


def _wait_until_it_rests(wire: Wire) -> None:
    """What a kill left to be removed is gone, and the pool is full: neither may burden the next round."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        left = wire.ask("GET", "/v1/sandboxes?limit=1").json()["sandboxes"]
        pool = wire.ask("GET", "/v1/cluster").json()
        if not left and pool["available"] == pool["pool_size"]:
            return
        time.sleep(0.02)
    raise RuntimeError(f"the platform does not come to rest: {left} {pool}")


def _life(sandboxes: Any, options: Options, name: str, measured: Measured) -> None:
    heard: list[float] = []
    start = time.perf_counter()
    sandbox = sandboxes.create(**options)
    created = time.perf_counter()
    said = sandbox.commands.run(ECHO, on_stdout=lambda _: heard.append(time.perf_counter())).stdout
    ran = time.perf_counter()
    sandbox.kill()
    end = time.perf_counter()
    if said != "hi\n":
        raise RuntimeError(f"{name} said {said!r}")
    measured.add(f"{name}: create", (created - start) * 1000)
    measured.add(f"{name}: first output", (heard[0] - start) * 1000)
    measured.add(f"{name}: run", (ran - created) * 1000)
    measured.add(f"{name}: kill", (end - ran) * 1000)
    measured.add(f"{name}: create + run + kill", (end - start) * 1000)


def _transfers(sandboxes: Any, here: Options, there: Options, rounds: int) -> Iterator[Row]:
    measured = Measured()
    data = os.urandom(SIZE_MB << 20)
    both = {
        name: sandboxes.create(timeout=3600, **options) for name, options in (("bare", there), ("here", here))
    }
    for _ in range(rounds):
        for name, sandbox in both.items():
            measured.add(f"{name}, in", timed(lambda: sandbox.files.write("big", data))[0])  # noqa: B023
            took, seen = timed(lambda: sandbox.files.read("big", format="bytes"))  # noqa: B023
            measured.add(f"{name}, out", took)
            if len(seen) < len(data):
                raise RuntimeError(f"{name} sent {len(seen)} bytes back")
    for sandbox in both.values():
        sandbox.kill()
    for direction in ("in", "out"):
        yield Row(
            figure=f"{SIZE_MB} MB {direction} through E2B's client",
            subject=measured.samples(f"here, {direction}"),
            baseline=measured.samples(f"bare, {direction}"),
            bar=Bar(text="≥ 0.5 × a bare handler's speed", limit=0.5, at_least=True),
            is_inverse=True,
        )


def _crowds(sandboxes: Any, running: Running, here: Options, rounds: int, count: int) -> Row:
    measured = Measured()

    async def theirs() -> None:
        made = await _at_once(measured, "E2B's client", lambda: sandboxes.create(**here), count)
        await asyncio.gather(*(one.kill() for one in made))

    async def ours() -> None:
        async with AsyncSandboxer(owner_file=running.owner_file, url=running.key.url) as client:
            made = await _at_once(measured, "our client", lambda: client.create(profile=PROFILE), count)
            await asyncio.gather(*(one.destroy() for one in made))

    for _ in range(rounds):
        asyncio.run(ours())
        asyncio.run(theirs())
    return Row(
        figure=f"{count} sandboxes at once by E2B's asynchronous client",
        subject=measured.samples("E2B's client"),
        baseline=measured.samples("our client"),
        bar=Bar(text="≤ 1.5 × by our own client", limit=1.5),
    )


async def _at_once(
    measured: Measured, name: str, make: Callable[[], Awaitable[Any]], count: int
) -> list[Any]:
    start = time.perf_counter()
    made = await asyncio.gather(*(make() for _ in range(count)))
    measured.add(name, (time.perf_counter() - start) * 1000)
    return made
