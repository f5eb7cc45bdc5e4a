"""Holds what an operator may decide about this backend; everything else is measured or derived."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from sandboxer.backends.namespaces.uids import CLAIMS


@dataclass(frozen=True, slots=True, kw_only=True)
class Overcommit:
    """Says how many times over the host's memory, cpus and pids may be promised. Disk is never promised
    twice: a full pool stops every tenant.
    """

    memory: float = 4.0
    cpu: float = 128.0
    pids: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespacesSettings:
    state_dir: Path
    images_dir: Path
    # Where `launcher` and `supervisor` are.
    guest_dir: Path
    # Size of the loop file made at the first start; None: half of what is free, at most 100 GB.
    pool_size_mb: int | None = None
    # Kept free in the pool for its own metadata.
    pool_headroom_mb: int = 256
    uid_base: int = 100_000_000
    uid_ranges: int = 8192
    # Of the host: platforms find each other's uids here.
    claims_dir: Path = CLAIMS
    overcommit: Overcommit = field(default_factory=Overcommit)
    # First folder below every cgroup hierarchy.
    cgroup_name: str = "sandboxer"
    boot_timeout_s: float = 10.0
    ptys: int = 64
    sigpending: int = 1024
    open_files: int = 1_048_576
    # File locks that one sandbox may hold: some 200 bytes of the kernel's memory each, charged to nobody.
    locks: int = 8192
    # Lines to one supervisor that may be open at once.
    streams: int = 128

    @property
    def run_dir(self) -> Path:
        return self.state_dir / "run"

    @property
    def pool_dir(self) -> Path:
        return self.state_dir / "pool"

    @property
    def kept_dir(self) -> Path:
        return self.state_dir / "kept"

    @property
    def scratch_dir(self) -> Path:
        return self.state_dir / "scratch"

    @property
    def pool_file(self) -> Path:
        return self.state_dir / "pool.btrfs"

    @property
    def cgroup_parent(self) -> str:
        """Returns a name for this state folder alone: another server on this host must not take our
        sandboxes for strays.
        """
        digest = hashlib.sha256(str(self.state_dir.resolve()).encode()).hexdigest()
        return f"{self.cgroup_name}/{digest[:12]}"
