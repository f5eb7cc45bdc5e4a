"""Decides whether one more sandbox fits, before anything is made."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sandboxer.backends.contract import Resources
from sandboxer.backends.namespaces.settings import Overcommit
from sandboxer.kernel.errors import NoCapacity

# Kept for the host itself whatever is promised.
HOST_MEMORY_MB = 512
HOST_PIDS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """Describes what the host has."""

    memory_mb: int
    cpus: int
    pids: int
    disk_mb: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Promised:
    """Sums what sandboxes were promised: running ones everything, stopped ones their disk."""

    memory_mb: int = 0
    vcpus: float = 0.0
    pids: int = 0
    disk_mb: int = 0
    # Of the pool, held by kept disks and copies of them after whoever wrote it is gone.
    kept_mb: int = 0

    def with_kept(self, kept_mb: int) -> Promised:
        return replace(self, kept_mb=kept_mb)

    def with_running(self, resources: Resources, sign: int = 1) -> Promised:
        return replace(
            self,
            memory_mb=self.memory_mb + sign * resources.memory_mb,
            vcpus=self.vcpus + sign * resources.vcpus,
            pids=self.pids + sign * resources.pids,
        )

    def with_disk(self, resources: Resources, sign: int = 1) -> Promised:
        return replace(self, disk_mb=self.disk_mb + sign * resources.disk_mb)

    def as_resources(self) -> Resources:
        return Resources(vcpus=self.vcpus, memory_mb=self.memory_mb, disk_mb=self.disk_mb, pids=self.pids)


def budget(host: Host, overcommit: Overcommit) -> Promised:
    """Returns the most that may be promised. Disk is promised only once: a full pool stops everybody."""
    return Promised(
        memory_mb=int(max(0, host.memory_mb - HOST_MEMORY_MB) * overcommit.memory),
        vcpus=host.cpus * overcommit.cpu,
        pids=int(max(0, host.pids - HOST_PIDS) * overcommit.pids),
        disk_mb=host.disk_mb,
    )


def admit(host: Host, overcommit: Overcommit, promised: Promised) -> None:
    """Raises NoCapacity when `promised`, the new sandbox included, is more than this host may promise."""
    limit = budget(host, overcommit)
    for resource, asked, allowed, unit in (
        ("memory", promised.memory_mb, limit.memory_mb, " MB (overcommit included)"),
        ("cpu", promised.vcpus, limit.vcpus, " CPUs (overcommit included)"),
        ("processes", promised.pids, limit.pids, " (overcommit included)"),
        ("disk", promised.disk_mb + promised.kept_mb, limit.disk_mb, " MB (what is kept included)"),
    ):
        if asked > allowed:
            raise NoCapacity(
                resource=resource,
                why=f"with it {asked:.9g} would be promised in all, of {allowed:.9g}{unit}",
            )


def check_single(host: Host, resources: Resources) -> None:
    """Refuses an order that even an empty host could not fill."""
    if resources.memory_mb > host.memory_mb:
        raise NoCapacity(
            resource="memory", why=f"{resources.memory_mb} MB asked, the host has {host.memory_mb}"
        )
    if resources.vcpus > host.cpus:
        raise NoCapacity(resource="cpu", why=f"{resources.vcpus:g} cpus asked, the host has {host.cpus}")
    if resources.pids > host.pids:
        raise NoCapacity(resource="processes", why=f"{resources.pids} asked, the host has {host.pids}")
    if resources.disk_mb > host.disk_mb:
        raise NoCapacity(resource="disk", why=f"{resources.disk_mb} MB asked, the pool has {host.disk_mb}")
