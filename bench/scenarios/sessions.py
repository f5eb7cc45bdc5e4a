"""A cell's round trip against a plain command; freeze and thaw against writing the freezer's file by hand.

By hand means a shell on the host, as an operator would: what the bare system calls cost is told beside it.
"""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Iterator
from pathlib import Path

from bench.client import Wire
from bench.measurements import Bar, Row, Samples
from bench.platform import Running
from bench.scenarios.life import WARM_UP, Measured, timed

TRUE = {"argv": ["true"]}
# Write the freezer's file, and wait until the kernel reports it.
BY_HAND = 'echo $2 >"$1/cgroup.freeze"; until grep -q "^frozen $2" "$1/cgroup.events"; do :; done'
FORTY_TWO = [{"text/plain": "42"}]


def sessions(running: Running, rounds: int) -> Iterator[Row | Samples]:
    wire, measured = running.wire(), Measured()
    took, session = timed(lambda: wire.ask("POST", "/v1/sessions", {"language": "python"}).json())
    path, sandbox = f"/v1/sessions/{session['id']}", f"/v1/sandboxes/{session['sandbox_id']}"
    work = _work_folder(running.state_dir, session["sandbox_id"])
    wire.ask("POST", f"{path}/cells", {"code": "x = 42"}).json()
    kept = 0
    for number in range(WARM_UP + rounds):
        if number == WARM_UP:
            measured.clear()
            kept = 0
        _cells(wire, path, sandbox, measured)
        kept += _pauses(wire, path, work, measured)
    wire.ask("DELETE", path).json()
    yield from _rows(measured, kept, rounds)
    yield Samples("session start, its own sandbox included", "ms", (took,))


def _cells(wire: Wire, path: str, sandbox: str, measured: Measured) -> None:
    measured.add("exec of true", timed(lambda: wire.ask("POST", f"{sandbox}/exec", TRUE).json())[0])
    took, cell = timed(lambda: wire.ask("POST", f"{path}/cells", {"code": "x"}).json())
    if cell["results"] != FORTY_TWO:
        raise RuntimeError(f"the cell said {cell!r}")
    measured.add("cell", took)


def _pauses(wire: Wire, path: str, work: Path, measured: Measured) -> int:
    measured.add("freeze by hand", timed(lambda: _by_hand(work, True))[0])
    measured.add("thaw by hand", timed(lambda: _by_hand(work, False))[0])
    measured.add("freeze: the two system calls", timed(lambda: _set_frozen(work, True))[0])
    measured.add("thaw: the two system calls", timed(lambda: _set_frozen(work, False))[0])
    measured.add("freeze", timed(lambda: wire.ask("POST", f"{path}/freeze").json())[0])
    measured.add("thaw", timed(lambda: wire.ask("POST", f"{path}/thaw").json())[0])
    return int(wire.ask("POST", f"{path}/cells", {"code": "x"}).json()["results"] == FORTY_TWO)


def _rows(measured: Measured, kept: int, rounds: int) -> Iterator[Row | Samples]:
    yield Row(
        figure="session cell round trip (`x`, Enter)",
        subject=measured.samples("cell"),
        baseline=measured.samples("exec of true"),
        bar=Bar(text="≤ 1.5 × exec of true", limit=1.5),
    )
    for verb in ("freeze", "thaw"):
        yield Row(
            figure=f"{verb} over HTTP",
            subject=measured.samples(verb),
            baseline=measured.samples(f"{verb} by hand"),
            bar=Bar(text="≤ 3 × the freezer's file by hand", limit=3.0),
        )
        yield measured.samples(f"{verb}: the two system calls")
    lost = Samples("rounds in which x was not 42", "rounds", (float(rounds - kept),))
    yield Row(figure="x is still 42", subject=lost, baseline=None, bar=Bar(text="always", limit=0.0))


def _work_folder(state_dir: Path, sandbox_id: str) -> Path:
    """Where the sandbox's commands live in the hierarchy that can freeze."""
    for root in (state_dir / "cgroup2", Path("/sys/fs/cgroup")):
        for folder, names, _ in os.walk(root):
            if sandbox_id in names and (found := Path(folder) / sandbox_id / "work").is_dir():
                return found
    raise RuntimeError(f"{sandbox_id} has no cgroup that can be frozen")


def _by_hand(work: Path, is_frozen: bool) -> None:
    """What somebody at a shell of the host would type, timed from outside as every baseline is."""
    subprocess.run(["/bin/sh", "-c", BY_HAND, "sh", str(work), str(int(is_frozen))], check=True)


def _set_frozen(work: Path, is_frozen: bool) -> None:
    """Write, and wait until the kernel says that every process stands still, or goes on."""
    events = os.open(work / "cgroup.events", os.O_RDONLY)
    try:
        waiting = select.poll()
        waiting.register(events, select.POLLPRI)
        (work / "cgroup.freeze").write_text("1" if is_frozen else "0")
        while f"frozen {int(is_frozen)}" not in os.pread(events, 4096, 0).decode():
            waiting.poll(1000)
    finally:
        os.close(events)
