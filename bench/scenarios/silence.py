"""Thousands of connections that never say a word; how long somebody's create takes meanwhile.

Quiet and crowded are measured in turn, in rounds of one run, and medians are compared: what else the machine
does meets both. Each create comes by a connection of its own, from the crowd's own address where there is
only one: who is locked out cannot connect.
"""

from __future__ import annotations

import resource
import select
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.measurements import Bar, Row, Samples, Skipped
from bench.platform import Running
from bench.scenarios.life import timed

BAR = Bar(text="≤ 2 × its quiet time", limit=2.0)
# Creates of each kind in a round.
CREATES = 5


@dataclass(frozen=True, slots=True)
class Kind:
    words: str
    count: int
    addresses: int
    # Opened again in a second, of those that were closed.
    again: int


KINDS = (
    Kind("10,000 silent connections from one address", 10_000, 1, 0),
    Kind("10,000 from one address that come back, 300 a second", 10_000, 1, 300),
    Kind("1,000 from as many addresses", 1_000, 1_000, 0),
)


def silence(
    running: Running, rounds: int, kinds: tuple[Kind, ...] = KINDS
) -> Iterator[Row | Samples | Skipped]:
    for _ in range(CREATES):
        create_ms(running)
    for kind in kinds:
        if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < kind.count + 100:
            yield Skipped(kind.words, "this host allows too few descriptors")
            continue
        quiet, arriving, held = measure(running, kind, rounds)
        yield Row(
            figure=f"create beside {kind.words}",
            subject=Samples("beside them", "ms", tuple(held)),
            baseline=Samples("quiet", "ms", tuple(quiet)),
            bar=BAR,
            note=f"while they arrive: median {statistics.median(arriving):.0f} ms",
        )
        yield Samples(f"create while they arrive: {kind.words}", "ms", tuple(arriving))


def measure(running: Running, kind: Kind, rounds: int) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of creates: quiet, while the crowd arrives, while it is there."""
    quiet: list[float] = []
    arriving: list[float] = []
    held: list[float] = []
    for _ in range(rounds):
        quiet += [create_ms(running) for _ in range(CREATES)]
        with crowd(running.port, kind) as is_there:
            arriving.append(create_ms(running))
            while not is_there():
                arriving.append(create_ms(running))
            held += [create_ms(running) for _ in range(CREATES)]
    return quiet, arriving, held


def create_ms(running: Running) -> float:
    def create() -> str:
        wire = running.wire()
        made = wire.ask("POST", "/v1/sandboxes", {"resources": {"disk_mb": 64}}).json()
        wire.close()
        return str(made["id"])

    took, made = timed(create)
    wire = running.wire()
    wire.ask("DELETE", f"/v1/sandboxes/{made}")
    wire.close()
    return took


class Arrival:
    """Tells whether all of a crowd were accepted; begins when the first is about to come."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        self._said = process.stdout
        if self._said.readline() != b"begins\n":
            raise RuntimeError("the crowd could not begin")

    def __call__(self) -> bool:
        return bool(select.select([self._said], [], [], 0)[0])


@contextmanager
def crowd(port: int, kind: Kind) -> Iterator[Arrival]:
    words = [sys.executable, "-m", "bench.silent"]
    words += [str(word) for word in (port, kind.count, kind.addresses, kind.again)]
    process = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert process.stdin is not None
    try:
        yield Arrival(process)
    finally:
        process.stdin.close()
        process.wait(60)
