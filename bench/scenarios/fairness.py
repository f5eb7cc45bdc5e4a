"""One tenant does its worst; what another one notices of it, and what the server holds meanwhile.

`python -m bench.scenarios.fairness --each` tells which act costs how much: each alone, with the processor
time of the server and of everybody.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from bench.abuse import ACTS
from bench.client import Wire
from bench.measurements import Bar, Row, Samples
from bench.platform import Running, open_platform, own_folder
from sandboxer.sdk.credentials import Credentials
from sandboxer.settings import Settings

SATS = 1_000_000_000
# Rate limits would end the abuse after two seconds; what is measured is what holds without them.
UNCOUNTED = dict.fromkeys(("limit_bucket_only", "limit_address", "limit_refusals"), "1000000")
# What the interpreter and all packages take before anybody asks for anything is not the tenants' doing.
OVER_BUDGET = 1.1
# Long enough for the longest act to come round again.
QUIET_S, LOUD_S, EACH_S = 6.0, 20.0, 8.0
# Under the limits as shipped: the highest tier there is for both, 224 requests a minute, and a neighbour who
# asks so seldom that it is never refused.
HIGHEST_TIER, PAUSE_S, PACED_S_A_ROUND = 32, 0.6, 1.5


@dataclass(frozen=True, slots=True)
class Stretch:
    """Milliseconds."""

    execs: list[float]
    looks: list[float]


class Partner:
    """A program of the bench's that is told and tells in lines."""

    def __init__(self, module: str, running: Running, key: Credentials, **more: object) -> None:
        # A session of its own: the kernel may schedule sessions as groups, and each sets its own priority.
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            text=True,
            start_new_session=True,
        )
        reported = {"port": running.port, "public_key": key.public_key, "secret_key": key.secret_key}
        self.tell({**reported, **more})
        if self.hear() != "ready":
            self.end()
            raise RuntimeError(f"{module} could not begin")

    def tell(self, value: object) -> None:
        assert self._process.stdin is not None
        print(json.dumps(value), file=self._process.stdin, flush=True)

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextmanager
def _neighbour(running: Running, *, warm_up: int = 50) -> Iterator[Partner]:
    partner = Partner("bench.neighbour", running, _account(running, "neighbour"), warm_up=warm_up)
    try:
        yield partner
    finally:
        partner.end()


@contextmanager
def _abused(running: Running, key: Credentials, acts: Collection[str]) -> Iterator[dict[str, int]]:
    """The abuser is at it, from the end of each act's first round on. Tells how often each was done."""
    partner = Partner("bench.abuse", running, key, acts=list(acts))
    done: dict[str, int] = {}
    try:
        yield done
        partner.tell("enough")
        done.update(json.loads(partner.hear()))
    finally:
        partner.end()


def _stretch(neighbour: Partner, seconds: float, least: int = 0, pause_s: float = 0.0) -> Stretch:
    neighbour.tell({"seconds": seconds, "least": least, "pause_s": pause_s})
    return Stretch(**json.loads(neighbour.hear()))


def fairness(running: Running, rounds: int) -> Iterator[Row | Samples]:
    least = max(rounds * 10, 100)
    abuser, pid = _account(running, "abuser"), running.process.pid
    with _neighbour(running) as neighbour:
        quiet = _stretch(neighbour, QUIET_S, least)
        empty_mb = _held_mb(pid)
        with _abused(running, abuser, ACTS) as done, _watched(pid) as memory:
            loud = _stretch(neighbour, LOUD_S, least)
        _clear(running, abuser)
    yield _slowdown("a neighbour's exec, p99, under abuse", quiet, loud, done)
    yield Row(
        figure="server's memory beyond an idle one's",
        subject=Samples("under abuse", "MB", (max(memory) - empty_mb,)),
        baseline=Samples("the budget", "MB", (float(Settings().budget_mb),)),
        bar=Bar(text=f"≤ {OVER_BUDGET:g} × the budget", limit=OVER_BUDGET),
    )
    yield Samples("exec, quiet", "ms", tuple(quiet.execs))
    yield Samples("exec, under abuse", "ms", tuple(loud.execs))


def fairness_as_shipped(running: Running, rounds: int) -> Iterator[Row | Samples]:
    """The same abuse against a platform with the limits that it is shipped with.

    Of 50 rounds' commands the 99th of a hundred is one of the two slowest: 400 rounds say more.
    """
    paced_s = rounds * PACED_S_A_ROUND
    abuser = _account(running, "abuser")
    with _neighbour(running, warm_up=5) as neighbour:
        quiet = _stretch(neighbour, paced_s, pause_s=PAUSE_S)
        with _abused(running, abuser, ACTS) as done:
            loud = _stretch(neighbour, paced_s, pause_s=PAUSE_S)
    yield _slowdown("a neighbour's exec, p99, under abuse, limits as shipped", quiet, loud, done)


def _slowdown(figure: str, quiet: Stretch, loud: Stretch, done: dict[str, int]) -> Row:
    medians = f"medians {_median(quiet.execs):.1f} and {_median(loud.execs):.1f} ms"
    return Row(
        figure=figure,
        subject=Samples("under abuse", "ms", (_p99(loud.execs),)),
        baseline=Samples("quiet", "ms", (_p99(quiet.execs),)),
        bar=Bar(text="≤ 3 × its quiet p99", limit=3.0),
        note=f"{medians} of {len(quiet.execs)} and {len(loud.execs)}; asked meanwhile {_done_words(done)}",
    )


def _account(running: Running, name: str) -> Credentials:
    owner = running.wire()
    made = owner.ask("POST", "/v1/keys", {"name": name, "account": name}).json()
    paid = {"sats": SATS, "id": f"bench-{name}", "reason": "bench"}
    owner.ask("POST", f"/v1/accounts/{name}/adjust", paid).json()
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    tier = {"tier": HIGHEST_TIER, "until": until, "reason": "bench"}
    owner.ask("POST", f"/v1/accounts/{name}/entitle", tier).json()
    owner.close()
    return Credentials(made["public_key"], made["secret_key"], running.key.url)


def _clear(running: Running, key: Credentials) -> None:
    """What an abuser who was ended has left."""
    wire = Wire("127.0.0.1", running.port, key)
    while found := wire.ask("GET", "/v1/sandboxes?limit=100").json()["sandboxes"]:
        for sandbox in found:
            wire.ask("DELETE", f"/v1/sandboxes/{sandbox['id']}")
    wire.close()


@contextmanager
def _watched(pid: int) -> Iterator[list[float]]:
    """Memory of the server and of what it started beside the launcher, five times a second."""
    seen, over = [_held_mb(pid)], threading.Event()

    def watch() -> None:
        while not over.wait(0.2):
            seen.append(_held_mb(pid))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        yield seen
    finally:
        over.set()
        watching.join()


def _held_mb(pid: int) -> float:
    """Its own, and that of its children (who unpacks archives is one); not that of sandboxes."""
    return _rss_mb(pid) + sum(_rss_mb(child) for child in _children(pid))


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(one) for one in task.read_text().split()]
        except OSError:
            continue  # a thread that has ended
    return found


def _rss_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:")), 0.0)


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def _done_words(done: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in done.items())


# -- which act costs how much


def _tell_each(running: Running, names: Collection[str], seconds: float) -> None:
    abuser = _account(running, "abuser")
    with _neighbour(running) as neighbour:
        print(f"{'':12} {'exec p50':>9} {'p99':>8} {'max':>8} {'look p50':>9} {'p99':>8} server, all: cores")
        _tell_one("quiet", running.process.pid, neighbour, seconds)
        for name in names:
            with _abused(running, abuser, tuple(ACTS) if name == "all" else name.split("+")) as done:
                _tell_one(name, running.process.pid, neighbour, seconds)
            _clear(running, abuser)
            print(f"{'':12} {_done_words(done)}")


def _tell_one(name: str, pid: int, neighbour: Partner, seconds: float) -> None:
    began, server, everybody = time.monotonic(), _cpu_s(pid), _machine_cpu_s()
    seen = _stretch(neighbour, seconds)
    passed = time.monotonic() - began
    cores = f"{(_cpu_s(pid) - server) / passed:.2f} {(_machine_cpu_s() - everybody) / passed:.2f}"
    execs = f"{_median(seen.execs):9.1f} {_p99(seen.execs):8.1f} {max(seen.execs):8.1f}"
    print(f"{name:12} {execs} {_median(seen.looks):9.1f} {_p99(seen.looks):8.1f} {cores}", flush=True)


def _cpu_s(pid: int) -> float:
    """Processor time of a process and of its children that have ended."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
    return sum(int(one) for one in ticks) / os.sysconf("SC_CLK_TCK")


def _machine_cpu_s() -> float:
    """Of everybody, since the machine began."""
    user, nice, system, _, _, irq, softirq = Path("/proc/stat").read_text().split()[1:8]
    return sum(int(one) for one in (user, nice, system, irq, softirq)) / os.sysconf("SC_CLK_TCK")


def _words() -> Any:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--image", type=Path, default=Path("/var/lib/sandboxer/images/base/rootfs"))
    parser.add_argument("--each", action="store_true", help="every act alone, then all of them")
    parser.add_argument("--act", action="append", default=[], help="one alone, or several: a+b, all")
    parser.add_argument("--seconds", type=float, default=EACH_S)
    parser.add_argument("--source", type=Path, help="another checkout whose server is measured")
    return parser.parse_args()


def main() -> None:
    words = _words()
    names = [*words.act, *((*ACTS, "all") if words.each or not words.act else ())]
    images_dir = words.image.resolve().parents[1]
    with (
        own_folder() as folder,
        open_platform(folder, images_dir, settings=UNCOUNTED, source=words.source) as running,
    ):
        _tell_each(running, names, words.seconds)


if __name__ == "__main__":
    main()
