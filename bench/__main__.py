"""`python -m bench`: all scenarios in one run on one machine."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench.against import compare
from bench.measurements import Report, Row, Samples, Skipped
from bench.platform import open_platform, own_folder
from bench.report import machine_facts, markdown, print_table, write_into
from bench.scenarios import crowd, life
from bench.scenarios import e2b as clients_of_e2b
from bench.scenarios import memory as kept_memory
from bench.scenarios.egress import egress
from bench.scenarios.execute import execute
from bench.scenarios.fairness import UNCOUNTED, fairness, fairness_as_shipped
from bench.scenarios.inception import inception
from bench.scenarios.ledger import HISTORY, QUICK_HISTORY, ledger
from bench.scenarios.mcp import mcp
from bench.scenarios.payments import payments
from bench.scenarios.proxy import proxy
from bench.scenarios.routes import routes
from bench.scenarios.sessions import sessions
from bench.scenarios.signed import signed
from bench.scenarios.silence import silence
from bench.scenarios.snapshots import snapshots
from bench.scenarios.startup import startup
from bench.scenarios.transfer import transfer

RESULTS = Path(__file__).parent / "results"
# These make sandboxes on a platform of the bench's own.
SANDBOXES = ("cold", "execute", "burst", "sessions", "transfer", "snapshots", "proxy", "idle")
# Each of these on one of its own.
APART = ("e2b", "warm", "fairness", "silence", "inception", "memory")
SCENARIOS = (*SANDBOXES, *APART, "egress", "routes", "signed", "mcp", "startup", "ledger")
# Only when it is asked for: it needs node, for a chain of its own.
ON_REQUEST = ("payments",)
WARM_POOL = 4
# A round of the ledger's takes milliseconds: a few of them would be noise.
LEDGER_ROUNDS = 20
Findings = Iterator[Row | Samples | Skipped]
Measure = Callable[[str, Callable[[], Iterator[Row | Samples]]], None]


def parse_words() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="sandboxer bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--quick", action="store_true", help="few rounds, small crowds: to see that it works")
    names = (*SCENARIOS, *ON_REQUEST)
    parser.add_argument("--only", action="append", choices=names, help="only this scenario (repeatable)")
    parser.add_argument("--transfers", type=int, default=HISTORY, help="length of the ledger's long history")
    parser.add_argument("--plot", type=Path, help="folder for plots")
    parser.add_argument("--image", type=Path, default=Path("/var/lib/sandboxer/images/base/rootfs"))
    parser.add_argument("--doc", type=Path, help="document whose figures are to be replaced")
    parser.add_argument("--against", metavar="REV", help="compare with this revision instead, side by side")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    if words.against and words.only:
        parser.error("--against has figures of its own, always all of them: leave --only away")
    return words


def run(words: argparse.Namespace, console: Console) -> Report:
    rounds = 5 if words.quick else words.rounds
    wanted = ("against",) if words.against else words.only or SCENARIOS
    rows: list[Row] = []
    extras: list[Samples] = []
    skipped: list[Skipped] = []
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    machine = machine_facts()
    images_dir = words.image.resolve().parents[1]

    def measure(
        name: str, findings: Callable[[], Iterator[Row | Samples | Skipped] | Iterator[Row | Samples]]
    ) -> None:
        if name not in wanted:
            return
        with console.status(f"measuring: {name}"):
            for found in findings():
                if isinstance(found, Row):
                    rows.append(found)
                elif isinstance(found, Samples):
                    extras.append(found)
                else:
                    skipped.append(found)

    with own_folder() as folder:
        measure("against", lambda: compare(words.against, images_dir, folder, rounds))
        measure("payments", lambda: payments(folder, rounds))
        if not {*SANDBOXES}.isdisjoint(wanted):
            with open_platform(folder, images_dir) as running:
                measure("cold", lambda: life.cold(running, words.image, rounds))
                measure("execute", lambda: execute(running, words.image, rounds))
                measure("sessions", lambda: sessions(running, rounds))
                count = 20 if words.quick else 100
                measure("burst", lambda: crowd.burst(running, words.image, rounds, count=count))
                measure("transfer", lambda: transfer(running, rounds))
                large = {"large_mb": 64, "count": 20} if words.quick else {}
                measure("snapshots", lambda: snapshots(running, min(rounds, 15), **large))
                measure("proxy", lambda: proxy(running, 2 if words.quick else rounds))
                idle = (20, 5.0) if words.quick else (500, 30.0)
                measure("idle", lambda: crowd.idle(running, count=idle[0], watch_s=idle[1]))
        measure("egress", lambda: egress(folder, images_dir, 2 if words.quick else min(rounds, 9)))
        measure("routes", lambda: routes(folder, images_dir, 5 if words.quick else rounds))
        if "e2b" in wanted:
            with open_platform(folder, images_dir, settings=clients_of_e2b.SETTINGS) as running:
                many = {"count": 20} if words.quick else {}
                measure("e2b", lambda: clients_of_e2b.e2b(running, words.image, rounds, **many))
            settings = {**clients_of_e2b.SETTINGS, "warm_pool": clients_of_e2b.WARM_POOL}
            with open_platform(folder, images_dir, settings=settings) as running:
                measure("e2b", lambda: clients_of_e2b.e2b_warm(running, words.image, rounds))
        if "fairness" in wanted:
            _fairness(measure, folder, images_dir, rounds)
        if "silence" in wanted:
            with open_platform(folder, images_dir, settings=UNCOUNTED) as running:
                measure("silence", lambda: silence(running, 2 if words.quick else min(rounds, 12)))
        if "inception" in wanted:
            with open_platform(folder, images_dir, settings=UNCOUNTED) as running:
                measure("inception", lambda: inception(running, rounds))
        skipped += _memory(measure, folder, images_dir, min(rounds, 15)) if "memory" in wanted else []
        if "warm" in wanted:
            with open_platform(folder, images_dir, warm_pool=WARM_POOL) as running:
                measure("warm", lambda: life.warm(running, words.image, rounds))
        measure("signed", lambda: signed(folder, rounds))
        measure("mcp", lambda: mcp(folder, rounds))
        measure("startup", lambda: startup(folder, min(rounds, 15)))
        history = QUICK_HISTORY if words.quick else words.transfers
        measure("ledger", lambda: ledger(folder, max(rounds, LEDGER_ROUNDS), history=history))
    return Report(machine=machine, started_at=started_at, rows=rows, extras=extras, skipped=skipped)


def _fairness(measure: Measure, folder: Path, images_dir: Path, rounds: int) -> None:
    with open_platform(folder, images_dir, settings=UNCOUNTED) as running:
        measure("fairness", lambda: fairness(running, rounds))
    with open_platform(folder, images_dir) as running:
        measure("fairness", lambda: fairness_as_shipped(running, rounds))


def _memory(measure: Measure, folder: Path, images_dir: Path, rounds: int) -> list[Skipped]:
    if (lacks := kept_memory.missing()) is not None:
        return [lacks]
    with open_platform(folder, images_dir, settings=kept_memory.settings(folder)) as running:
        measure("memory", lambda: kept_memory.memory(running, rounds))
    return []


def main() -> int:
    words = parse_words()
    console = Console(stderr=words.json, highlight=False)
    if not console.is_terminal:
        console = Console(stderr=words.json, highlight=False, width=150)
    if os.geteuid() != 0:
        console.print("The bench needs root: it makes real sandboxes.")
        return 1
    needs_image = words.against or not {*SANDBOXES, *APART}.isdisjoint(words.only or SCENARIOS)
    if needs_image and not (words.image / "bin").exists():
        console.print(f"{words.image} is no root tree. Build it: sandboxer image build")
        return 1
    report = run(words, console)
    print_table(report, console)
    if not words.against:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "latest.json").write_text(json.dumps(report.as_json(), indent=1))
        (RESULTS / "latest.md").write_text(markdown(report))
    if words.doc:
        write_into(words.doc, report)
    if words.plot:
        # Only now: drawing is optional and its library is not part of the platform.
        plots = importlib.import_module("bench.plots")
        for path in plots.draw(report, words.plot):
            console.print(f"[dim]plot:[/] {path}")
    if words.json:
        json.dump(report.as_json(), sys.stdout)
        print()
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
