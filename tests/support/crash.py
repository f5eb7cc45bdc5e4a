"""What is left when a server is killed."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.real_backend import state_folder

CGROUPS = [
    path for path in (Path("/sys/fs/cgroup/unified"), *Path("/sys/fs/cgroup").glob("*")) if path.is_dir()
]


@contextmanager
def dependencies() -> Iterator[Path]:
    """A state folder; whatever a failed test leaves on the host is removed with it."""
    with state_folder() as state:
        try:
            yield state
        finally:
            kill_everything(state)


def cgroup_parents(state: Path) -> list[Path]:
    digest = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]
    roots = {path.resolve() for path in CGROUPS} | {Path("/sys/fs/cgroup")}
    return [root / "sandboxer" / digest for root in sorted(roots) if (root / "sandboxer" / digest).is_dir()]


def leftovers(state: Path) -> list[str]:
    """Everything of this state folder that is still on the host, seen from outside."""
    found = [
        f"cgroup {path}" for parent in cgroup_parents(state) for path in parent.iterdir() if path.is_dir()
    ]
    found += [f"disk {path.name}" for path in (state / "pool").iterdir() if "_" in path.name]
    found += [f"run {path}" for path in (state / "run").rglob("*") if "sbx_" in path.name]
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    found += [
        f"mount {where}" for where in mounts if where.startswith(f"{state}/") and where != f"{state}/pool"
    ]
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            if str(state).encode() in (proc / "cmdline").read_bytes():
                found.append(f"process {proc.name}")
        except OSError:
            continue
    return found


def remove_leftovers(state: Path) -> None:
    for parent in cgroup_parents(state):
        parent.rmdir()
    if os.path.ismount(state / "pool"):
        assert os.system(f"umount '{state}/pool'") == 0


def eventually(look: Callable[[], list[str]]) -> list[str]:
    """Kernel clean-up is asynchronous: "nothing left" means within five seconds."""
    deadline = time.monotonic() + 5
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def kill_everything(state: Path) -> None:
    for parent in cgroup_parents(state):
        if (parent / "cgroup.kill").exists():
            (parent / "cgroup.kill").write_text("1")

    def remove() -> list[str]:
        """What is left of the cgroups; deepest first."""
        for parent in cgroup_parents(state):
            for folder in sorted((p for p in parent.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
                try:
                    folder.rmdir()
                except OSError:
                    continue
        return [str(path) for parent in cgroup_parents(state) for path in parent.iterdir() if path.is_dir()]

    assert eventually(remove) == []
    remove_leftovers(state)
