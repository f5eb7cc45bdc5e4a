"""Code run once over HTTP: against bwrap around the same program, and against doing it by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench import bwrap
from bench.census import wait_for_census
from bench.client import Wire
from bench.measurements import Bar, Row, Samples
from bench.platform import Running
from bench.scenarios.life import WARM_UP, Measured, timed

PROGRAM = "print(1)"
HELLO = {"language": "python", "code": PROGRAM}


def execute(running: Running, image: Path, rounds: int) -> Iterator[Row | Samples]:
    measured = Measured()
    floor = bwrap.argv(image, ("python3", "-c", PROGRAM))
    wire = running.wire()
    before = running.census()
    for number in range(WARM_UP + rounds):
        if number == WARM_UP:
            measured.clear()
        measured.add("bwrap … python3 -c", bwrap.life_ms(floor, says=b"1\n"))
        measured.add("one-shot", timed(lambda: _one_shot(wire, measured))[0])
        measured.add("by hand", timed(lambda: _by_hand(wire))[0])
    left = wait_for_census(running.state_dir, before)
    yield from _rows(measured, left)


def _one_shot(wire: Wire, measured: Measured) -> None:
    said = wire.ask("POST", "/v1/execute", HELLO).json()
    if said["stdout"] != "1\n":
        raise RuntimeError(f"the run said {said!r}")
    measured.add("one-shot: the program alone", said["duration_ms"])
    measured.add("one-shot: within the server", said["total_ms"])


def _by_hand(wire: Wire) -> None:
    made = wire.ask("POST", "/v1/sandboxes", {}).json()
    target = f"/v1/sandboxes/{made['id']}"
    said = wire.ask("POST", f"{target}/exec", {"argv": ["python3", "-c", PROGRAM]}).json()
    if said["stdout"] != "1\n":
        raise RuntimeError(f"the sandbox said {said!r}")
    wire.ask("DELETE", target).json()


def _rows(measured: Measured, left: dict[str, int]) -> Iterator[Row | Samples]:
    subject = measured.samples("one-shot")
    yield Row(
        figure="one-shot execute of a Python hello",
        subject=subject,
        baseline=measured.samples("bwrap … python3 -c"),
        bar=Bar(text="≤ 2 × bwrap … python3 -c", limit=2.0),
    )
    yield Row(
        figure="the same against create + exec + destroy by hand",
        subject=subject,
        baseline=measured.samples("by hand"),
        bar=Bar(text="≤ 1 × by hand", limit=1.0),
    )
    yield Row(
        figure="left behind by one-shots",
        subject=Samples("left behind", "things", (float(sum(left.values())),)),
        baseline=None,
        bar=Bar(text="nothing", limit=0.0),
        note=", ".join(f"{count} {name}" for name, count in left.items()),
    )
    for name in ("one-shot: the program alone", "one-shot: within the server"):
        yield measured.samples(name)
