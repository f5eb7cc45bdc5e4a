"""What sandboxes leave on a host, counted: "nothing left behind" as numbers."""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from dataclasses import asdict, dataclass
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
# Below this, host uids belong to people and services.
FIRST_SANDBOX_UID = 100_000_000


@dataclass(frozen=True, slots=True)
class Census:
    mounts: int
    cgroups: int
    disks: int
    run_files: int
    loops: int
    processes: int

    def more_than(self, before: Census) -> dict[str, int]:
        now, then = asdict(self), asdict(before)
        return {name: now[name] - then[name] for name in now if now[name] > then[name]}


def take_census(state_dir: Path) -> Census:
    return Census(
        mounts=len(Path("/proc/self/mountinfo").read_text().splitlines()),
        cgroups=_count_cgroups(state_dir),
        disks=_count_disks(state_dir / "pool"),
        run_files=_count_files(state_dir / "run"),
        loops=_count_loops(state_dir),
        processes=_count_processes(),
    )


def wait_for_census(state_dir: Path, before: Census, *, timeout_s: float = 5.0) -> dict[str, int]:
    """What is left beyond `before`; kernel clean-up is asynchronous, so it gets a few seconds."""
    deadline = time.monotonic() + timeout_s
    while left := take_census(state_dir).more_than(before):
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return {}


def _count_disks(folder: Path) -> int:
    return sum(entry.name.startswith("sbx_") for entry in os.scandir(folder)) if folder.is_dir() else 0


def _count_files(folder: Path) -> int:
    return sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


def _count_cgroups(state_dir: Path) -> int:
    return sum(len(folders) for root in cgroup_roots(state_dir) for _, folders, _ in os.walk(root))


def remove_cgroups(state_dir: Path) -> None:
    """The empty folders that a platform keeps for its next start."""
    for root in cgroup_roots(state_dir):
        for folder, _, _ in os.walk(root, topdown=False):
            os.rmdir(folder)


def cgroup_roots(state_dir: Path) -> list[Path]:
    """Ours are below `sandboxer/<digest of the state folder>` in every hierarchy."""
    digest = hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]
    return [*CGROUPS.glob(f"*/sandboxer/{digest}"), *CGROUPS.glob(f"sandboxer/{digest}")]


def _count_loops(state_dir: Path) -> int:
    listed = subprocess.run(
        ["losetup", "-l", "-n", "-O", "BACK-FILE"], capture_output=True, text=True, check=False
    )
    return sum(1 for line in listed.stdout.splitlines() if line.strip().startswith(str(state_dir)))


def _count_processes() -> int:
    count = 0
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                count += os.stat(entry.path).st_uid >= FIRST_SANDBOX_UID
            except FileNotFoundError:
                continue
    return count
