"""Describes a sandbox as a container, in the words of an engine's API, and reads what that says. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sandboxer.backends.contract import Observation, Order, Presence, Resources, Usage
from sandboxer.backends.launch import CAPABILITIES
from sandboxer.kernel.errors import InvalidRequest, NoCapacity, NotAvailable
from sandboxer.kernel.values import is_sandbox_id, value_class

MB = 1024 * 1024
# The supervisor inside: a layer of the image, for an engine that is far away sees no file of ours.
PROGRAM = "/.sandboxer/supervisor"
DOOR_PORT = 2
INSIDE = "/run/sandboxer"
# Processes of ours that do not count as the sandbox's: what carries lines, twice while servers change.
OURS = 4
_SMALLEST_SHM_MB = 64
_HOSTNAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
# What is written on a container: how it is found again, and what it was promised.
SANDBOX, OWNER, SECRET, PROMISED = (
    "sandboxer.sandbox",
    "sandboxer.owner",
    "sandboxer.secret",
    "sandboxer.promised",
)


@value_class
class Overcommit:
    """Says how many times over the engine's memory and processors may be promised."""

    memory: float = 4.0
    cpu: float = 128.0


@value_class
class Holds:
    """What a machine has, or what of it is promised."""

    memory_mb: float = 0
    vcpus: float = 0

    def plus(self, resources: Resources) -> Holds:
        return Holds(memory_mb=self.memory_mb + resources.memory_mb, vcpus=self.vcpus + resources.vcpus)


def name_of(sandbox_id: str) -> str:
    return f"sandboxer-{sandbox_id}"


def checked(order: Order) -> Order:
    """Returns the order with a host name. Raises InvalidRequest, NotAvailable."""
    if not is_sandbox_id(order.sandbox_id):
        raise InvalidRequest(field="sandbox_id", why="not a sandbox id")
    hostname = order.hostname or "sbx-" + order.sandbox_id[4:16]
    if not _HOSTNAME.fullmatch(hostname):
        raise InvalidRequest(field="hostname", why="letters, digits and hyphens, at most 63")
    missing = {
        "snapshot": order.origin is not None,
        "volumes": bool(order.volumes),
        "a workspace that is not for everybody inside": bool(order.folders),
        "namespaces inside": order.nests,
    }
    for what, is_wanted in missing.items():
        if is_wanted:
            raise NotAvailable(what=what, why="ext.docker has none")
    check_resources(order.resources)
    return replace(order, hostname=hostname)


def check_resources(resources: Resources) -> None:
    """Checks that an engine takes them. Raises InvalidRequest."""
    # Docker runs nothing with less memory.
    for field, value, least in (
        ("vcpus", resources.vcpus, 0.01),
        ("memory_mb", resources.memory_mb, 6),
        ("disk_mb", resources.disk_mb, 1),
        ("pids", resources.pids, 1),
    ):
        if value < least:
            raise InvalidRequest(field=field, why=f"must be at least {least}")


def demand_room(total: Holds, promised: Holds, wanted: Resources) -> None:
    """Raises NoCapacity when the engine's machine would be promised more than there is."""
    after = promised.plus(wanted)
    for resource, most, sum_ in (
        ("memory", total.memory_mb, after.memory_mb),
        ("cpu", total.vcpus, after.vcpus),
    ):
        if sum_ > most:
            raise NoCapacity(
                resource=resource, why=f"{sum_:g} of {most:g} would be promised on the engine's machine"
            )


def limits(resources: Resources) -> dict[str, Any]:
    """Returns the limits of a container; they can be given to one that runs, too."""
    memory = resources.memory_mb * MB
    return {
        "Memory": memory,
        "MemorySwap": memory,
        "NanoCpus": int(resources.vcpus * 1e9),
        "PidsLimit": resources.pids + OURS,
    }


def creation(order: Order, *, image: str, owner: str, secret: bytes, limits_disk: bool) -> dict[str, Any]:
    """Returns the body of the call that makes a container."""
    resources = order.resources
    promised = {"vcpus": resources.vcpus, "memory_mb": resources.memory_mb, "disk_mb": resources.disk_mb}
    shm_mb = max(_SMALLEST_SHM_MB, resources.memory_mb // 4)
    host = {
        **limits(resources),
        "NetworkMode": "none",
        "CapDrop": ["ALL"],
        "CapAdd": list(CAPABILITIES),
        "SecurityOpt": ["no-new-privileges"],
        "ShmSize": shm_mb * MB,
        "Tmpfs": {INSIDE: "rw,nosuid,nodev,noexec,mode=0755,size=256k"},
        "IpcMode": "private",
        "LogConfig": {"Type": "none"},
        "RestartPolicy": {"Name": "no"},
        "Init": False,
        **({"StorageOpt": {"size": f"{resources.disk_mb}M"}} if limits_disk else {}),
    }
    return {
        "Image": image,
        "Hostname": order.hostname,
        "User": "0:0",
        "WorkingDir": "/",
        "Env": [],
        "Entrypoint": [PROGRAM],
        "Cmd": [f"port={DOOR_PORT}", "-1", "0", INSIDE],
        # The secret comes by stdin, and by stdout the word that it listens.
        "OpenStdin": True,
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Tty": False,
        "StopSignal": "SIGKILL",
        "Labels": {
            SANDBOX: order.sandbox_id,
            OWNER: owner,
            SECRET: secret.hex(),
            PROMISED: json.dumps(promised),
        },
        "HostConfig": host,
    }


# What carries lines to the supervisor (see `lines`).
CARRIER = {
    "AttachStdin": True,
    "AttachStdout": True,
    "AttachStderr": True,
    "Tty": False,
    "User": "0:0",
    "Cmd": [PROGRAM, f"lines={DOOR_PORT}"],
}


@value_class
class Seen:
    """What an engine says of a container."""

    presence: Presence
    reason: str | None
    secret: bytes
    resources: Resources
    ended_at: datetime | None


def seen(said: Mapping[str, Any]) -> Seen:
    """Reads the answer to an inspection. Raises LookupError, TypeError, ValueError for what is none."""
    state, host, labels = said["State"], said["HostConfig"], said["Config"]["Labels"]
    promised = json.loads(labels[PROMISED])
    presence, reason = _presence(state)
    return Seen(
        presence=presence,
        reason=reason,
        secret=bytes.fromhex(labels[SECRET]),
        resources=Resources(
            vcpus=(host.get("NanoCpus") or 0) / 1e9 or float(promised["vcpus"]),
            memory_mb=int(host["Memory"]) // MB,
            disk_mb=int(promised["disk_mb"]),
            pids=max(1, int(host.get("PidsLimit") or 0) - OURS),
        ),
        ended_at=None
        if presence in (Presence.RUNNING, Presence.FROZEN)
        else _moment(state.get("FinishedAt")),
    )


def _presence(state: Mapping[str, Any]) -> tuple[Presence, str | None]:
    status = str(state["Status"])
    if state.get("Paused") or status == "paused":
        return Presence.FROZEN, None
    if state.get("Running") or status in ("running", "restarting"):
        return Presence.RUNNING, None
    if status in ("removing", "dead"):
        return Presence.GONE, "removed"
    if status in ("created", "configured", "initialized"):
        return Presence.STOPPED, "never_started"
    return Presence.STOPPED, "oom_killed" if state.get("OOMKilled") else "exited"


def _moment(text: object) -> datetime | None:
    """Reads a moment as engines write it, with more digits than we keep; the year 1 is never."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d{1,6})?\d*(Z|[+-]\d\d:\d\d)", str(text))
    if found is None or str(text).startswith("0001"):
        return None
    return datetime.fromisoformat(found[1] + (found[2] or "") + found[3].replace("Z", "+00:00"))


def observation(one: Seen) -> Observation:
    return Observation(presence=one.presence, reason=one.reason, last_seen_alive=one.ended_at)


def usage(one: Seen, stats: Mapping[str, Any], written_bytes: int) -> Usage:
    """Returns what a container takes, of what an engine counts: nothing for one that does not run."""
    memory = stats.get("memory_stats") or {}
    # As everywhere, what can be had back at once is not used.
    cached = (memory.get("stats") or {}).get("total_inactive_file") or (memory.get("stats") or {}).get(
        "inactive_file"
    )
    used = max(0, int(memory.get("usage") or 0) - int(cached or 0))
    limit = one.resources.memory_mb * MB
    return Usage(
        cpu_s=int(((stats.get("cpu_stats") or {}).get("cpu_usage") or {}).get("total_usage") or 0) / 1e9,
        memory_bytes=min(used, limit),
        memory_limit_bytes=limit,
        disk_bytes=written_bytes,
        disk_limit_bytes=one.resources.disk_mb * MB,
        processes=int((stats.get("pids_stats") or {}).get("current") or 0),
        processes_limit=one.resources.pids,
    )


def promised_of(listed: Mapping[str, Any]) -> Holds:
    """Returns what a container in a list was promised; nothing for one that says nothing."""
    try:
        said = json.loads(listed["Labels"][PROMISED])
        return Holds(memory_mb=float(said["memory_mb"]), vcpus=float(said["vcpus"]))
    except (LookupError, TypeError, ValueError):
        return Holds()
