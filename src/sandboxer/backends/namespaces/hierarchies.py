"""Which cgroup hierarchies this host has, and where each controller lives."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from sandboxer.kernel.errors import Broken

CONTROLLERS = ("memory", "cpu", "pids")


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where things are mounted on this host."""

    unified: Path
    # Controllers that live in the unified hierarchy.
    v2: frozenset[str]
    # Controllers that live in hierarchies of their own.
    v1: dict[str, Path]

    def has(self, controller: str) -> bool:
        return controller in self.v2 or controller in self.v1


def find_hierarchies(fallback: Path, mounts: str | None = None) -> Hierarchies:
    """What is mounted; a cgroup2 of our own at `fallback` when nobody mounted one."""
    text = mounts if mounts is not None else Path("/proc/mounts").read_text()
    unified: Path | None = None
    v1: dict[str, Path] = {}
    for line in text.splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2" and unified is None:
            unified = Path(where)
        elif kind == "cgroup":
            v1.update({name: Path(where) for name in options.split(",") if name in CONTROLLERS})
    if unified is None:
        fallback.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            ["mount", "-t", "cgroup2", "none", str(fallback)], capture_output=True, check=False
        )
        if done.returncode:
            raise Broken(why=f"no cgroup2: {done.stderr.decode(errors='replace').strip()}")
        unified = fallback
    available = frozenset((unified / "cgroup.controllers").read_text().split())
    return Hierarchies(unified, available & frozenset(CONTROLLERS), v1)


def favour_moves(unified: Path) -> bool:
    """Remount with `favordynmods`: a command joining its cgroup otherwise waits for an RCU period, 6 to 18 ms
    each time. Other options are kept as they are. False when this kernel cannot."""
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options = line.split()[:4]
        if kind == "cgroup2" and where == str(unified):
            if "favordynmods" in options.split(","):
                return True
            wanted = f"remount,{options},favordynmods"
            argv = ["mount", "-o", wanted, str(unified)]
            return subprocess.run(argv, capture_output=True, check=False).returncode == 0
    return False
