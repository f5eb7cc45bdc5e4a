"""`status`: how the platform is, what is free, and what this key may still do.

`expire`, `inspect host|stale`, `reap-stale`: what the platform's owner looks after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer
from rich.table import Table

from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.output import ago, columns, err, facts_table, lacks_list, span, until
from sandboxer.edges.cli.verbs import Answer, group, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.platform import Cluster, Health, Limits, Pools, Stale, Stats

app = typer.Typer(rich_markup_mode="rich")
inspecting = group("Look at the host and at leftovers.")
groups = {"inspect": inspecting}


@verb(app, "status")
def status(platform: Sandboxer) -> Answer:
    """Show health, free capacity, pools, counts and your own limits.

    Examples:

        sandboxer status

        sandboxer status --json | jq .limits.requests
    """
    health = platform.status.health()
    if health.status != "ok":
        # First: what fails may keep the rest from being told.
        err.print(_trouble(health), style="bold red")
    cluster, pools = platform.status.cluster(), platform.status.pools()
    stats, limits = platform.status.stats(), platform.status.limits()
    value = {"health": health, "cluster": cluster, "pools": pools, "stats": stats, "limits": limits}
    shown = [_stats(health.status, stats, cluster), _hosts(cluster), *_pools(pools), *_limits(limits)]
    return Answer(value, *shown, code=0 if health.status == "ok" else Exit.UNAVAILABLE)


def _trouble(health: Health) -> str:
    failing = ", ".join(name for name, check in health.checks.items() if check != "ok")
    return f"The platform is {health.status}. Failing: {failing}. Why is in the server's log."


def _stats(health: str, stats: Stats, cluster: Cluster) -> Table:
    facts: list[tuple[str, object]] = [
        ("health", health),
        ("up for", span(stats.uptime_s)),
        ("counts of", "everyone" if stats.of == "platform" else "your account"),
        ("sandboxes", _counts(stats.sandboxes) or "none"),
        *((name, _counts(counts) or "none") for name, counts in stats.work.items()),
    ]
    if stats.requests is not None:
        facts.append(("requests", f"{stats.requests.answered} answered: {_counts(stats.requests.by_status)}"))
    if cluster.mode == "pooled":
        facts.append(("stand ready", f"{cluster.available} of {cluster.pool_size}"))
    return facts_table(facts)


def _hosts(cluster: Cluster) -> Table:
    rows = []
    for host in cluster.hosts:
        free, total = host.free, host.total
        row: list[object] = [host.backend.name, "yes" if host.backend.healthy else "no"]
        if free is None or total is None:
            row += ["?", "?", "?", "?"]
        else:
            row += [
                f"{free.vcpus:g} of {total.vcpus:g}",
                f"{free.memory_mb} of {total.memory_mb} MB",
                f"{free.disk_mb} of {total.disk_mb} MB",
                f"{free.pids} of {total.pids}",
            ]
        rows.append(row)
    return columns(
        rows, "\nHOST", "\nHEALTHY", "\nFREE CPUS", "\nFREE MEMORY", "\nFREE DISK", "\nFREE PROCESSES"
    )


def _pools(pools: Pools) -> Iterator[Table]:
    storage = [
        (
            one.backend,
            one.kind,
            f"{one.used_mb} MB",
            f"{one.size_mb} MB",
            f"{one.most_mb} MB",
            f"{one.promised_mb} MB",
        )
        for one in pools.storage
    ]
    yield columns(
        storage, "\nSTORAGE OF", "\nKIND", "\nUSED", "TAKEN OF\nTHE DISK", "GROWS\nUP TO", "\nPROMISED"
    )
    warm = [
        (one.backend, one.image, f"{one.resources.memory_mb} MB", f"{one.ready} of {one.wanted}")
        for one in pools.warm
    ]
    if warm:
        yield columns(warm, "\nWARM POOL OF", "\nIMAGE", "\nMEMORY", "\nREADY")


def _limits(limits: Limits) -> tuple[Table, Table]:
    left = ", ".join(f"{one.left} of {one.per_minute} ({one.what})" for one in limits.requests)
    slots = "no limit" if limits.slots is None else f"{limits.slots}"
    free = f", {limits.free_slots} free by tier" if limits.free_slots else ""
    facts: list[tuple[str, object]] = [
        ("requests left this minute", left or "no limit"),
        ("sandboxes at once", f"{slots}; {limits.slots_in_use} in use{free}"),
        ("caps, in sats", _counts(limits.caps)),
        ("key ends", limits.expires_at),
    ]
    rows = [
        (one.profile, one.ttl_max, f"{one.resources_max.vcpus:g}", f"{one.resources_max.memory_mb} MB")
        for one in limits.profiles
    ]
    profiles = columns(rows, "\nPROFILE", "\nLONGEST", "\nMOST CPUS", "\nMOST MEMORY")
    return facts_table(facts, title="\nYour limits"), profiles


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)


@verb(app, "expire")
def expire(
    platform: Sandboxer,
    apply: Annotated[bool, typer.Option("--apply", help="End them, instead of only showing them.")] = False,
) -> Answer:
    """Show, or end, sandboxes past their time. The platform does this by itself; this is for looking.

    Examples:

        sandboxer expire

        sandboxer expire --apply --json
    """
    found = platform.host.expire(apply=apply)
    word = "ended" if found.applied else "past their time (end them with --apply)"
    return Answer(found, f"{len(found.sandbox_ids)} {word}", *found.sandbox_ids, sep="\n  ")


@verb(app, "reap-stale", timeout_s=300.0)
def reap_stale(platform: Sandboxer) -> Answer:
    """Remove what no record accounts for: sandboxes, snapshots, volumes, images, processes.

    Look first: after a restored dump, or on another database than usual, these may be your tenants' disks.
    What is not removed here goes by itself after `quarantine_grace`.

    Examples:

        sandboxer inspect stale && sandboxer reap-stale
    """
    found = platform.host.reap_stale()
    return Answer(found, f"removed {len(found.removed)}", *_stale(found.removed), sep="\n")


@verb(inspecting, "host")
def inspect_host(platform: Sandboxer) -> Answer:
    """Show the platform's host: backends, walls, what it lacks, sandboxes by state.

    Examples:

        sandboxer inspect host --json
    """
    host = platform.host.report()
    counts = ", ".join(f"{count} {state}" for state, count in sorted(host.sandboxes.items()))
    facts = [("version", host.version), ("up for", span(host.uptime_s)), ("sandboxes", counts or "none")]
    rows = [
        (one.name, "yes" if one.healthy else "no", ", ".join(one.walls), ", ".join(one.capabilities))
        for one in host.backends
    ]
    shown: list[Any] = [facts_table([*facts, *sorted(host.facts.items())])]
    shown.append(columns(rows, "\nBACKEND", "\nHEALTHY", "\nWALLS", "\nCAN"))
    if lacks := [lack for one in host.backends for lack in one.lacks]:
        shown.append(lacks_list(lacks))
    return Answer(host, *shown)


@verb(inspecting, "stale")
def inspect_stale(platform: Sandboxer) -> Answer:
    """Show what no record accounts for, since when, and when it goes; remove it now with `reap-stale`.

    Examples:

        sandboxer inspect stale
    """
    found = list(platform.host.stale())
    return Answer(found, *_stale(found)) if found else Answer(found, "[green]nothing stale[/]")


def _stale(found: Sequence[Stale]) -> list[Table]:
    rows = [(one.id, one.kind, one.why, ago(one.first_seen), until(one.goes_at)) for one in found]
    return [columns(rows, "ID", "KIND", "WHY", "FIRST SEEN", "GOES")] if rows else []
