"""Create to first output, exec in a live sandbox, destroy: against bwrap and podman in the same rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench import bwrap
from bench.census import wait_for_census
from bench.client import Wire
from bench.measurements import Bar, Row, Samples, Skipped
from bench.platform import Running
from bench.podman import Podman, PodmanUnusable, open_podman
from sandboxer.sdk.sync.client import Sandboxer

ECHO = {"argv": ["/bin/echo", "hi"]}
WARM_UP = 5


@dataclass(slots=True)
class Measured:
    """Milliseconds by name, one per round."""

    values: dict[str, list[float]] = field(default_factory=dict)

    def add(self, name: str, took_ms: float) -> None:
        self.values.setdefault(name, []).append(took_ms)

    def samples(self, name: str) -> Samples:
        return Samples(name, "ms", tuple(self.values[name]))

    def clear(self) -> None:
        self.values.clear()


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    result = act()
    return (time.perf_counter() - start) * 1000, result


def one_life(wire: Wire, measured: Measured) -> None:
    """Create, first output, one more command, destroy."""
    start = time.perf_counter()
    made = wire.ask("POST", "/v1/sandboxes", {}).json()
    created = time.perf_counter()
    target = f"/v1/sandboxes/{made['id']}"
    said = wire.ask("POST", f"{target}/exec", ECHO).json()
    first_output = time.perf_counter()
    if said["stdout"] != "hi\n":
        raise RuntimeError(f"the sandbox said {said!r}")
    measured.add("create", (created - start) * 1000)
    measured.add("create to first output", (first_output - start) * 1000)
    for step, took in made["timings_ms"].items():
        measured.add(f"create: {step}", took)
    measured.add("exec", timed(lambda: wire.ask("POST", f"{target}/exec", ECHO).json())[0])
    measured.add("destroy", timed(lambda: wire.ask("DELETE", target).json())[0])


def cold(running: Running, image: Path, rounds: int) -> Iterator[Row | Samples | Skipped]:
    measured = Measured()
    floor = bwrap.argv(image)
    wire = running.wire()
    with ExitStack() as stack:
        podman: Podman | None = None
        try:
            podman = stack.enter_context(open_podman(image))
        except PodmanUnusable as error:
            yield Skipped("podman run --rm", str(error))
        before = running.census()
        for number in range(WARM_UP + rounds):
            if number == WARM_UP:
                measured.clear()
            measured.add("bwrap", bwrap.life_ms(floor))
            one_life(wire, measured)
            if podman is not None:
                measured.add("podman run --rm", podman.life_ms())
        left = wait_for_census(running.state_dir, before)
        flags = podman.flags if podman is not None else ""
    yield from _rows(measured, left, flags, with_podman=podman is not None)
    yield from _sdk_exec(running, rounds)


def _rows(
    measured: Measured, left: dict[str, int], flags: str, *, with_podman: bool
) -> Iterator[Row | Samples]:
    floor = measured.samples("bwrap")
    first = measured.samples("create to first output")
    yield Row(
        figure="create → first output, cold",
        subject=first,
        baseline=floor,
        bar=Bar(text="≤ 3 × bwrap", limit=3.0),
    )
    if with_podman:
        yield Row(
            figure="the same against podman",
            subject=first,
            baseline=measured.samples("podman run --rm"),
            bar=Bar(text="≥ 10 × faster than podman run --rm", limit=10.0, at_least=True),
            is_inverse=True,
            note=f"podman run --rm {flags}",
        )
    yield Row(
        figure="exec in a live sandbox",
        subject=measured.samples("exec"),
        baseline=floor,
        bar=Bar(text="≤ 1 × bwrap", limit=1.0),
    )
    yield Row(
        figure="destroy",
        subject=measured.samples("destroy"),
        baseline=floor,
        bar=Bar(text="≤ 2 × bwrap", limit=2.0),
    )
    leaks = Samples("left behind", "things", (float(sum(left.values())),))
    yield Row(
        figure="left behind after all rounds",
        subject=leaks,
        baseline=None,
        bar=Bar(text="nothing", limit=0.0),
        note=", ".join(f"{count} {name}" for name, count in left.items()),
    )
    yield measured.samples("create")
    for name in measured.values:
        if name.startswith("create: "):
            yield measured.samples(name)


def _sdk_exec(running: Running, rounds: int) -> Iterator[Samples]:
    """What a program pays on top, that uses our Python client instead of a bare socket."""
    measured = Measured()
    with Sandboxer(owner_file=running.owner_file, url=running.key.url) as client, client.create() as sandbox:
        for _ in range(rounds):
            measured.add("exec through the Python SDK", timed(lambda: sandbox.exec(ECHO["argv"]))[0])
    yield measured.samples("exec through the Python SDK")


def warm(running: Running, image: Path, rounds: int) -> Iterator[Row | Samples]:
    measured = Measured()
    floor = bwrap.argv(image)
    wire = running.wire()
    for number in range(WARM_UP + rounds):
        if number == WARM_UP:
            measured.clear()
        _let_the_pool_fill()
        measured.add("bwrap", bwrap.life_ms(floor))
        one_life(wire, measured)
    subject = measured.samples("create to first output")
    yield Row(
        figure="create → first output, warm pool",
        subject=Samples("create to first output, warm", "ms", subject.values),
        baseline=measured.samples("bwrap"),
        bar=Bar(text="≤ 1.5 × bwrap", limit=1.5),
    )


def _let_the_pool_fill() -> None:
    # The bar is about creates that find a stocked pool; refilling takes one cold create, far less than this.
    time.sleep(0.15)
