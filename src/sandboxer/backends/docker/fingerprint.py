"""Says what an engine can do, of what it says of itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxer.backends.contract import Fingerprint, Lack, Wall
from sandboxer.backends.docker.engine import Version

_LIMITS = {
    "MemoryLimit": (Wall.MEMORY, "memory limits"),
    "CpuCfsQuota": (Wall.CPU, "processor limits"),
    "PidsLimit": (Wall.PIDS, "process limits"),
}
_UIDS = Lack(
    what="uid ranges",
    why="containers of one engine share their uids, remapped or not",
    remedy="use ext.namespaces for strangers",
)
_IO = Lack(
    what="io limits", why="a container's reading and writing is not limited", remedy="use ext.namespaces"
)


def fingerprint(info: Mapping[str, Any], version: Version, *, address: str, limits_disk: bool) -> Fingerprint:
    """Returns what a host can do whose engine says this."""
    options = [str(one) for one in info.get("SecurityOptions") or ()]
    has_filter = any(one.startswith("name=seccomp") and "unconfined" not in one for one in options)
    is_remapped = any(one.startswith(("name=userns", "name=rootless")) for one in options)
    is_linux = info.get("OSType", "linux") == "linux"
    walls = {Wall.FILES, Wall.PROCESSES, Wall.NETWORK, Wall.CAPABILITIES}
    lacks = [_UIDS, _IO]
    for word, (wall, what) in _LIMITS.items():
        if info.get(word):
            walls.add(wall)
        else:
            why = "the engine's kernel has none"
            lacks.append(Lack(what=what, why=why, remedy="turn on the cgroup controllers of that host"))
    if has_filter:
        walls.add(Wall.SYSCALLS)
    else:
        lacks.append(
            Lack(
                what="syscall filter",
                why="the engine has no seccomp",
                remedy="start it with its default filter",
            )
        )
    if limits_disk:
        walls.add(Wall.DISK)
    else:
        lacks.append(_no_disk_limit(str(info.get("Driver"))))
    if not is_linux:
        lacks.append(Lack(what="everything", why="its containers are not Linux", remedy="use a Linux engine"))
    facts = {
        "isolation_level": "container",
        "engine": version.engine,
        "engine_api": ".".join(str(number) for number in version.api),
        "address": address,
        "storage": str(info.get("Driver")),
        "kernel": str(info.get("KernelVersion")),
        "cgroups": f"v{info.get('CgroupVersion') or 1}",
        "user_namespace": "one for all containers"
        if is_remapped
        else "none: root inside is the host's uid 0",
    }
    return Fingerprint(healthy=is_linux, walls=frozenset(walls), facts=facts, lacks=tuple(lacks))


def unanswered(version: Version, *, address: str, why: str) -> Fingerprint:
    """Returns what is known of a host whose engine says nothing now."""
    facts = {"isolation_level": "container", "engine": version.engine, "address": address}
    lack = Lack(what="its engine", why=why, remedy="start it, or mend SANDBOXER_DOCKER_HOST")
    return Fingerprint(healthy=False, walls=frozenset(), facts=facts, lacks=(lack,))


def _no_disk_limit(driver: str) -> Lack:
    return Lack(
        what="disk limits",
        why=f"the engine's storage ({driver}) limits no container: one can fill the disk of all",
        remedy="give the engine the btrfs or zfs driver, or overlay2 over xfs with pquota",
    )
