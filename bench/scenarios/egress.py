"""The egress proxy against tinyproxy, and a decision with ten thousand rules.

Both proxies stand outside of a sandbox, before the same servers and under the same clients (`wrk`, a new
connection for each request; `curl` through CONNECT), in turns in one run. They live in a network namespace,
the servers in another one whose address looks public, so ours runs as it is. Towards them it keeps
connections, as any proxy may, and tinyproxy does not. The way through a sandbox's relay is told beside it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.measurements import Bar, Row, Samples, Skipped
from sandboxer.access.egress.policy import Ask, Rules, decide
from sandboxer.access.egress.rules import Action, Policy, Rule, check_policy

RULES = 10_000
ASKED = 2_000
NEEDED = {"wrk": "wrk", "curl": "curl", "tinyproxy": "tinyproxy", "gcc": "gcc", "unshare": "util-linux"}
HALF = Bar(text="≥ 0.5 × tinyproxy", limit=0.5, at_least=True)
QUICK = Bar(text="≤ 0.2 ms with 10,000 rules", limit=0.2)


def egress(folder: Path, images_dir: Path, rounds: int) -> Iterator[Row | Samples | Skipped]:
    yield Row(figure="an egress decision", subject=_decisions(rounds), baseline=None, bar=QUICK)
    missing = [package for program, package in NEEDED.items() if shutil.which(program) is None]
    if missing:
        yield Skipped("egress proxy", f"not installed: {', '.join(missing)}")
        return
    words = ["unshare", "--net", sys.executable, "-m", "bench.outward", "measure"]
    said = subprocess.run(
        [*words, str(rounds), str(folder), str(images_dir)], check=True, stdout=subprocess.PIPE, text=True
    )
    answer = json.loads(said.stdout)
    for figure, key, unit in (
        ("requests a second out, a connection each", "requests", "/s"),
        ("a download through CONNECT", "tunnel", "MB/s"),
    ):
        yield Row(
            figure=figure,
            subject=Samples("sandboxer's egress proxy", unit, tuple(answer[f"{key} ours"])),
            baseline=Samples("tinyproxy", unit, tuple(answer[f"{key} theirs"])),
            bar=HALF,
        )
    yield Samples("the same download from inside a sandbox", "MB/s", tuple(answer["tunnel inside"]))
    yield Samples("the same download without a proxy", "MB/s", tuple(answer["tunnel bare"]))


def _decisions(rounds: int) -> Samples:
    """One in three hosts is allowed by its name, one by the name above it, one not at all."""
    names = [f"h{n}.example{n % 97}.com" for n in range(RULES)]
    rules = [Rule(action=Action.ALLOW, host=name if n % 2 else f"*.{name}") for n, name in enumerate(names)]
    sorted_rules = Rules(check_policy(Policy(rules=tuple(rules))))
    asks = [Ask(("", "a.b.", "none.")[n % 3] + names[n * 5 % RULES], 443, True) for n in range(ASKED)]
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        for ask in asks:
            decide(sorted_rules, ask)
        took.append((time.perf_counter() - began) / ASKED * 1000)
    return Samples("decide", "ms", tuple(took))
