"""`status`: how the platform is, what is free, and what this key may still do.

`expire`, `inspect host|stale`, `reap-stale`: what the platform's owner looks after.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, err, facts_table, out, print_json, span, until
from sandboxer.wire.platform import Cluster, Health, Limits, Pools, Stats
from sandboxer.wire.sandboxes import Stale

app = typer.Typer(rich_markup_mode="rich")
inspecting = typer.Typer(
    help="Look at the host and at leftovers.", no_args_is_help=True, rich_markup_mode="rich"
)
groups = {"inspect": inspecting}


@app.command("status")
def status(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Show health, free capacity, pools, counts and your own limits.

    Examples:

        sandboxer status

        sandboxer status --json | jq .limits.requests
    """
    with client(url, state_dir) as platform:
        health = platform.status.health()
        if health.status != "ok":
            # First: what fails may keep the rest from being told.
            err.print(_trouble(health), style="bold red")
        cluster = platform.status.cluster()
        pools = platform.status.pools()
        stats = platform.status.stats()
        limits = platform.status.limits()
    if json:
        parts = {"cluster": cluster, "pools": pools, "stats": stats, "limits": limits}
        print_json({"health": health, **parts})
    else:
        _show_stats(health.status, stats, cluster)
        _show_hosts(cluster)
        _show_pools(pools)
        _show_limits(limits)
    if health.status != "ok":
        raise typer.Exit(Exit.UNAVAILABLE)


def _trouble(health: Health) -> str:
    failing = ", ".join(name for name, check in health.checks.items() if check != "ok")
    return f"The platform is {health.status}. Failing: {failing}. Why is in the server's log."


def _show_stats(health: str, stats: Stats, cluster: Cluster) -> None:
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
    out.print(facts_table(facts))


def _show_hosts(cluster: Cluster) -> None:
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
    out.print(
        columns(
            rows, "\nHOST", "\nHEALTHY", "\nFREE CPUS", "\nFREE MEMORY", "\nFREE DISK", "\nFREE PROCESSES"
        )
    )


def _show_pools(pools: Pools) -> None:
    storage = [
        (one.backend, one.kind, f"{one.used_mb} of {one.size_mb} MB", f"{one.promised_mb} MB")
        for one in pools.storage
    ]
    out.print(columns(storage, "\nSTORAGE OF", "\nKIND", "\nUSED", "\nPROMISED"))
    if pools.warm:
        warm = [
            (one.backend, one.image, f"{one.resources.memory_mb} MB", f"{one.ready} of {one.wanted}")
            for one in pools.warm
        ]
        out.print(columns(warm, "\nWARM POOL OF", "\nIMAGE", "\nMEMORY", "\nREADY"))


def _show_limits(limits: Limits) -> None:
    left = ", ".join(f"{one.left} of {one.per_minute} ({one.what})" for one in limits.requests)
    slots = "no limit" if limits.slots is None else f"{limits.slots}"
    facts: list[tuple[str, object]] = [
        ("requests left this minute", left or "no limit"),
        ("sandboxes at once", f"{slots}; {limits.slots_in_use} in use, {limits.free_slots} free by tier"),
        ("caps, in sats", _counts(limits.caps)),
        ("key ends", limits.expires_at),
    ]
    out.print(facts_table(facts, title="\nYour limits"))
    rows = [
        (one.profile, one.ttl_max, f"{one.resources_max.vcpus:g}", f"{one.resources_max.memory_mb} MB")
        for one in limits.profiles
    ]
    out.print(columns(rows, "\nPROFILE", "\nLONGEST", "\nMOST CPUS", "\nMOST MEMORY"))


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)


@app.command("expire")
def expire(
    apply: Annotated[bool, typer.Option("--apply", help="End them, instead of only showing them.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Show, or end, sandboxes past their time. The platform does this by itself; this is for looking.

    Examples:

        sandboxer expire

        sandboxer expire --apply --json
    """
    with client(url, state_dir) as platform:
        found = platform.host.expire(apply=apply)
    if json:
        print_json(found)
        return
    word = "ended" if found.applied else "past their time (end them with --apply)"
    out.print(f"{len(found.sandbox_ids)} {word}", *found.sandbox_ids, sep="\n  ")


@app.command("reap-stale")
def reap_stale(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Remove what no record accounts for: sandboxes, snapshots, volumes, images, processes.

    Look first: after a restored dump, or on another database than usual, these may be your tenants' disks.
    What is not removed here goes by itself after `quarantine_grace`.

    Examples:

        sandboxer inspect stale && sandboxer reap-stale
    """
    with client(url, state_dir, timeout_s=300.0) as platform:
        found = platform.host.reap_stale()
    if json:
        print_json(found)
        return
    out.print(f"removed {len(found.removed)}")
    _show_stale(found.removed)


@inspecting.command("host")
def inspect_host(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Show the platform's host: backends, walls, what it lacks, sandboxes by state.

    Examples:

        sandboxer inspect host --json
    """
    with client(url, state_dir) as platform:
        host = platform.host.report()
    if json:
        print_json(host)
        return
    counts = ", ".join(f"{count} {state}" for state, count in sorted(host.sandboxes.items()))
    facts = [("version", host.version), ("up for", span(host.uptime_s)), ("sandboxes", counts or "none")]
    out.print(facts_table([*facts, *sorted(host.facts.items())]))
    rows = [
        (one.name, "yes" if one.healthy else "no", ", ".join(one.walls), ", ".join(one.capabilities))
        for one in host.backends
    ]
    out.print(columns(rows, "\nBACKEND", "\nHEALTHY", "\nWALLS", "\nCAN"))
    lacks = [(lack.what, lack.why, lack.remedy) for one in host.backends for lack in one.lacks]
    if lacks:
        out.print(columns(lacks, "\nLACKS", "\nWHY", "\nREMEDY"))


@inspecting.command("stale")
def inspect_stale(json: Json = False, url: Url = None, state_dir: StateDir = None) -> None:
    """Show what no record accounts for, since when, and when it goes; remove it now with `reap-stale`.

    Examples:

        sandboxer inspect stale
    """
    with client(url, state_dir) as platform:
        found = platform.host.stale()
    if json:
        print_json(list(found))
        return
    if not found:
        out.print("[green]nothing stale[/]")
    _show_stale(list(found))


def _show_stale(found: list[Stale]) -> None:
    if found:
        rows = [(one.id, one.kind, one.why, ago(one.first_seen), until(one.goes_at)) for one in found]
        out.print(columns(rows, "ID", "KIND", "WHY", "FIRST SEEN", "GOES"))
