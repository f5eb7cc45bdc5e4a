"""Opens `ext.oci`: the disks, limits and records of `ext.namespaces`, in a state folder of its own, with an
OCI runtime that starts what runs over them.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial

from sandboxer.backends.contract import Fingerprint, Lack, Wall
from sandboxer.backends.launch import Means
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.namespaces import open_backend as open_namespaces
from sandboxer.backends.namespaces.settings import NamespacesSettings
from sandboxer.backends.oci.bundle import RuntimeKind
from sandboxer.backends.oci.control import limit_processes
from sandboxer.backends.oci.gvisor import GvisorReach
from sandboxer.backends.oci.memory import MemoryFolder
from sandboxer.backends.oci.runtime import find_runtime, version_of
from sandboxer.backends.oci.starter import OciSettings, OciStarter
from sandboxer.settings import Settings
from sandboxer.wiring.backends import namespaces_settings
from sandboxer.wiring.remembering import RememberingBackend

NAME = "ext.oci"
# Checks of the contract that gVisor, the runtime by default, does not pass, and why.
DEVIATIONS = {
    "freezing_stops_every_process_and_leaves_files_readable": "gVisor stops whole, its supervisor too:"
    " files can be read once it is thawed",
}
# Measured: 22 while it idles, and 2 for each process of its own.
_TASKS_OF_GVISOR = 256
_TASKS_OF_A_PROCESS = 4
# What it needs of a host that `ext.namespaces` has, and cannot promise.
_WITHOUT_UIDS = Lack(
    what="uid ranges",
    why="gVisor's own processes are the host's root, in an empty folder of their own and behind its filter",
    remedy="none is needed: no process of a sandbox is one of the host's",
)
_AS_HOST_ROOT = Lack(
    what="uid ranges",
    why="root inside has the host's uid 0, without its capabilities: two sandboxes share a uid",
    remedy="use runsc, or ext.namespaces, for strangers",
)


def open_backend(settings: Settings) -> AbstractAsyncContextManager[NamespacesBackend]:
    """Opens the backend of a platform, in a folder of its state folder. Raises NotAvailable."""
    own = namespaces_settings(settings.model_copy(update={"state_dir": settings.state_dir / "oci"}))
    own = replace(own, images_dir=settings.images_dir, uid_base=settings.uid_base)
    return open_oci(own, runtime=settings.oci_runtime)


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
        memory_dir=settings.state_dir / "memory",
    )

    def choose(held_fds: tuple[int, ...]) -> Means:
        reach = partial(GvisorReach, oci, streams=settings.streams) if kind.has_own_kernel else None
        return Means(
            name=NAME,
            starter=OciStarter(oci, held_fds),
            reach=reach,
            adjust=lambda found: adjusted(kind, found),
            host_tasks=host_tasks if kind.has_own_kernel else None,
        )

    if not kind.has_own_kernel:
        return open_namespaces(settings, choose=choose)
    version = version_of(str(program)).split("\n", 1)[0].removeprefix("runsc version ")

    def limit(sandbox_id: str, pids: int) -> None:
        limit_processes(oci.control(sandbox_id), pids)

    return open_namespaces(
        settings,
        choose=choose,
        connect=lambda parts: RememberingBackend(parts, MemoryFolder(oci, version), limit),
    )


def host_tasks(pids: int) -> int:
    """Says how many tasks of the host gVisor may have for so many processes inside, which it limits itself: a
    refusal of the host's would end it.
    """
    return _TASKS_OF_GVISOR + _TASKS_OF_A_PROCESS * pids


def adjusted(kind: RuntimeKind, found: Fingerprint) -> Fingerprint:
    """Says what this host can do by this runtime, of what is found on it."""
    lack = _WITHOUT_UIDS if kind.has_own_kernel else _AS_HOST_ROOT
    facts = {**found.facts, "runtime": str(kind)}
    if kind.has_own_kernel:
        # What runs inside talks to a kernel of its own, as in a small machine: no call of it is the host's.
        facts["isolation_level"] = "microvm"
        facts["checkpoint"] = "memory"
    return replace(found, walls=found.walls - {Wall.UID_RANGE}, facts=facts, lacks=(*found.lacks, lack))
