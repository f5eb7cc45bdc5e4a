"""Two trees of this project in one run on one machine: what a change costs, as a ratio to another revision.

The other revision is checked out into a folder of its own, with its own guest programs, and both platforms
run side by side. Rounds alternate between them in random order, so that what else the machine does weighs on
both alike.
"""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.client import Wire
from bench.measurements import Bar, Row, Samples, Skipped
from bench.platform import Running, open_platform
from bench.scenarios.life import ECHO, WARM_UP, Measured, one_life, timed

CHECKOUT = Path(__file__).resolve().parents[1]
POOL_MB = 2_000
BAR = 1.15
MEGABYTE = os.urandom(1 << 20)
# What every caller meets; the rest is where its time goes.
MEASURED = ("create", "create to first output", "exec", "destroy", "look", "1 MB in", "1 MB out")


@contextmanager
def other_tree(revision: str) -> Iterator[Path]:
    """A checkout of `revision` with its guest programs built."""
    with tempfile.TemporaryDirectory(prefix="sandboxer-against-", dir="/var/tmp") as folder:
        tree = Path(folder) / "tree"
        _git("worktree", "add", "--detach", "--quiet", str(tree), revision)
        try:
            subprocess.run(["make", "-s", "-C", str(tree / "guest")], check=True)
            yield tree
        finally:
            _git("worktree", "remove", "--force", str(tree))


def compare(revision: str, images_dir: Path, folder: Path, rounds: int) -> Iterator[Row | Samples | Skipped]:
    with ExitStack() as stack:
        tree = stack.enter_context(other_tree(revision))
        running: dict[str, Running] = {}
        for name, source in (("ours", CHECKOUT), (revision, tree)):
            state = folder / f"against-{len(running)}"
            state.mkdir()
            running[name] = stack.enter_context(
                open_platform(state, images_dir, source=source, pool_mb=POOL_MB)
            )
        # Only now: a server does not wait long for the first word of a connection.
        wires = {name: one.wire() for name, one in running.items()}
        measured = {name: Measured() for name in running}
        for number in range(WARM_UP + rounds):
            if number == WARM_UP:
                for one in measured.values():
                    one.clear()
            for name in random.sample(list(wires), k=len(wires)):
                one_life(wires[name], measured[name])
                _files(wires[name], measured[name])
    for figure in MEASURED:
        yield Row(
            figure=figure,
            subject=measured["ours"].samples(figure),
            baseline=measured[revision].samples(figure),
            bar=Bar(text=f"≤ {BAR:g} × {revision}", limit=BAR),
        )
    yield from (
        measured["ours"].samples(name) for name in measured["ours"].values if name.startswith("create: ")
    )


def _files(wire: Wire, measured: Measured) -> None:
    """A look at a sandbox, and a megabyte in and out of it."""
    target = f"/v1/sandboxes/{wire.ask('POST', '/v1/sandboxes', {}).json()['id']}"
    wire.ask("POST", f"{target}/exec", ECHO).json()
    measured.add("look", timed(lambda: wire.ask("GET", target).json())[0])
    file = f"{target}/files/content?path=%2Ftmp%2Ffile"
    digest = hashlib.sha256(MEGABYTE).hexdigest()
    put = timed(lambda: wire.put(file, (MEGABYTE,), digest, len(MEGABYTE)).json())
    measured.add("1 MB in", put[0])
    measured.add("1 MB out", timed(lambda: wire.drain(file))[0])
    wire.ask("DELETE", target).json()


def _git(*words: str) -> None:
    subprocess.run(["git", "-C", str(CHECKOUT), *words], check=True)
