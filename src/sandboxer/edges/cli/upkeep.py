"""`expire`, `inspect host|stale`, `reap-stale`: what the platform's owner looks after."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, facts_table, out, print_json, span, until
from sandboxer.wire.sandboxes import Stale

app = typer.Typer(rich_markup_mode="rich")
inspecting = typer.Typer(
    help="Look at the host and at leftovers.", no_args_is_help=True, rich_markup_mode="rich"
)
groups = {"inspect": inspecting}


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
