"""Opens `ext.oci`: the disks, limits and records of `ext.namespaces`, in a state folder of its own, with an
OCI runtime that starts what runs over them.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from pathlib import Path

from sandboxer.backends.contract import Fingerprint, Lack, Wall
from sandboxer.backends.launch import Means
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.namespaces import open_backend as open_namespaces
from sandboxer.backends.namespaces.settings import NamespacesSettings
from sandboxer.backends.oci.bundle import RuntimeKind
from sandboxer.backends.oci.gvisor import GvisorReach
from sandboxer.backends.oci.starter import OciSettings, OciStarter
from sandboxer.kernel.errors import NotAvailable

NAME = "ext.oci"
# What it needs of a host that `ext.namespaces` has, and cannot promise.
_WITHOUT_PIDS = Lack(
    what="process limits",
    why="processes behind gVisor are none of the host's: their memory is what holds them back",
    remedy="give a sandbox no more memory than its processes may take",
)
_AS_HOST_ROOT = Lack(
    what="uid ranges",
    why="root inside has the host's uid 0, without its capabilities: two sandboxes share a uid",
    remedy="use runsc, or ext.namespaces, for strangers",
)


def open_oci(
    settings: NamespacesSettings, *, runtime: str = "runsc"
) -> AbstractAsyncContextManager[NamespacesBackend]:
    """Opens the backend on a state folder. `runtime`: a name in the PATH, or a path. Raises NotAvailable."""
    program = find_runtime(runtime)
    kind = RuntimeKind(program.name)
    oci = OciSettings(
        kind=kind,
        program=program,
        run_dir=settings.run_dir,
        guest_dir=settings.guest_dir,
        programs_dir=settings.state_dir / "programs",
        cgroup_parent=settings.cgroup_parent,
    )

    def choose(held_fds: tuple[int, ...]) -> Means:
        reach = GvisorReach(oci, streams=settings.streams) if kind.has_own_kernel else None
        return Means(NAME, OciStarter(oci, held_fds), reach, lambda found: adjusted(kind, found))

    return open_namespaces(settings, choose=choose)


def find_runtime(name: str) -> Path:
    """Returns the program. Raises NotAvailable when there is none, or one that is no runtime we know."""
    found = shutil.which(name)
    if found is None:
        raise NotAvailable(what="ext.oci", why=f"there is no {name} on this host")
    if Path(found).name not in [*RuntimeKind]:
        raise NotAvailable(what="ext.oci", why=f"{found} is none of {', '.join(RuntimeKind)}")
    return Path(found)


def adjusted(kind: RuntimeKind, found: Fingerprint) -> Fingerprint:
    """Says what this host can do by this runtime, of what is found on it."""
    missing = {Wall.UID_RANGE, Wall.PIDS} if kind.has_own_kernel else {Wall.UID_RANGE}
    lack = _WITHOUT_PIDS if kind.has_own_kernel else _AS_HOST_ROOT
    facts = {**found.facts, "runtime": str(kind)}
    return replace(found, walls=found.walls - missing, facts=facts, lacks=(*found.lacks, lack))
