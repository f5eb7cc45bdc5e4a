"""What a sandbox is told of itself, as JSON and as a page for people. Decisions only.

A description names no key and nothing of others, so who carries it away has learnt nothing that could be
used: the platform knows a sandbox by the line it comes from, never by words that it brings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from sandboxer import __version__
from sandboxer.backends.guest import INSIDE
from sandboxer.kernel.values import counted, value_class
from sandboxer.sandboxes.records import AtEnd, Inception, Sandbox

FILE, PAGE = "sandbox.json", "README"
# Counted up when a member changes its meaning; members are only added otherwise.
FORMAT = 1
CLIENT = "/usr/local/bin/sandboxer"
_AT_END = {
    AtEnd.DESTROY: "it is removed, with everything on its disk",
    AtEnd.STOP: "it is stopped, and its disk is kept for a while",
    AtEnd.SLEEP: "it is stopped, and starts again when it is next used",
}


@value_class
class Place:
    """Where a sandbox stands among others."""

    # How many accounts are above the one that made it: 0 for one made from outside.
    depth: int = 0
    # By which it can speak to the platform, within what it was granted; None: it cannot.
    socket: str | None = None


def facts_of(sandbox: Sandbox, place: Place) -> dict[str, Any]:
    """Returns the members of the description."""
    resources = sandbox.resources
    idle = sandbox.idle_timeout
    return {
        "format": FORMAT,
        "platform": {"name": "sandboxer", "version": __version__},
        "id": sandbox.id,
        "name": sandbox.name,
        "profile": sandbox.profile,
        "image": sandbox.image,
        "limits": {
            "vcpus": resources.vcpus,
            "memory_mb": resources.memory_mb,
            "disk_mb": resources.disk_mb,
            "pids": resources.pids,
        },
        "trust": sandbox.trust.value,
        "network": sandbox.network,
        "depth": place.depth,
        "created_at": _moment(sandbox.created_at),
        "ends_at": _moment(sandbox.expires_at),
        "at_end": sandbox.at_end.value,
        "idle_timeout_s": None if idle is None else idle.total_seconds(),
        "budget": _granted(sandbox.inception) if place.socket is not None else None,
        "api": None if place.socket is None else {"socket": place.socket, "url": "http://localhost"},
        "tools": {"client": CLIENT},
    }


def _granted(inception: Inception | None) -> dict[str, Any] | None:
    if inception is None:
        return None
    return {
        "sats": inception.budget_sats,
        "depth": inception.depth,
        "slots": inception.slots,
        "scopes": list(inception.scopes),
        "on_parent_end": inception.on_parent_end.value,
    }


def files_of(facts: Mapping[str, Any]) -> dict[str, str]:
    """Returns the files that `INSIDE` holds, by name."""
    return {FILE: json.dumps(facts, indent=2) + "\n", PAGE: _page(facts)}


def _moment(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _page(facts: Mapping[str, Any]) -> str:
    limits = facts["limits"]
    lines = [
        f"This is sandbox {facts['id']}" + (f" ({facts['name']})" if facts["name"] else "") + ".",
        "",
        f"CPUs {limits['vcpus']:g}, memory {limits['memory_mb']} MB, disk {limits['disk_mb']} MB,"
        f" at most {limits['pids']} processes.",
        "It reaches no network." if facts["trust"] == "zero" else "It reaches the network by a proxy.",
    ]
    if facts["ends_at"] is not None:
        lines.append(f"It ends at {facts['ends_at']}: {_AT_END[AtEnd(facts['at_end'])]}.")
    if facts["idle_timeout_s"] is not None:
        lines.append(f"It ends earlier if nothing happens in it for {facts['idle_timeout_s']:g} seconds.")
    lines += [
        *_on_the_api(facts),
        "",
        f"The same for programs: {INSIDE}/{FILE}. By command: sandboxer discover",
        "",
    ]
    return "\n".join(lines)


def _on_the_api(facts: Mapping[str, Any]) -> list[str]:
    if facts["api"] is None:
        return ["It cannot reach the platform's API: whoever makes a sandbox can grant it that."]
    granted = facts["budget"]
    slots = "any number of sandboxes" if granted["slots"] is None else counted(granted["slots"], "sandbox")
    return [
        f"Its root can ask the platform, as: sandboxer api GET /v1/sandboxes  ({facts['api']['socket']})",
        f"Granted: {counted(granted['sats'], 'sat')}, {slots} at once, and"
        f" {counted(granted['depth'], 'generation')} below those.",
    ]
