"""`doctor`: what this host can and cannot do, why, and what to do about it. Leaves nothing changed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from sandboxer.artifacts.images import list_images
from sandboxer.backends.contract import Fingerprint, Lack, Wall
from sandboxer.backends.namespaces.fingerprint import examine
from sandboxer.backends.namespaces.older_walls import behind_older_walls, lack_of_new_walls
from sandboxer.backends.namespaces.pool import look_at_pool
from sandboxer.edges.cli.doctor_payments import payments_off
from sandboxer.edges.cli.doctor_tries import tried
from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import columns, facts_table, out, print_json, size
from sandboxer.settings import Settings, load_settings
from sandboxer.wiring import namespaces_settings

app = typer.Typer(rich_markup_mode="rich")
# Decided when the pool is opened, which a look must not do.
AT_START = {Wall.DISK: "known once the platform has opened its storage pool"}
NEEDED_FREE_GB = 2


@app.command("doctor")
def doctor(
    state_dir: Annotated[
        Path | None, typer.Option("--state-dir", metavar="DIR", help="State folder.")
    ] = None,
    json: Json = False,
) -> None:
    """Say what this host can and cannot do, and why. Needs no server; exit code 1 if it can make no sandbox.

    It writes a small file to the state folder and the storage pool, removes it, and asks a platform that runs
    there how it is. Without one, it asks the nodes of coins that are set up what they are.

    Examples:

        sandboxer doctor

        sandboxer doctor --json | jq .lacks
    """
    settings = load_settings(state_dir=state_dir)
    seen, missing = _examine(settings)
    missing += _not_ready(settings)
    healthy = seen.healthy and not missing
    if json:
        print_json(
            {
                "healthy": healthy,
                "backend": "ext.namespaces",
                "walls": sorted(seen.walls),
                "facts": dict(seen.facts) | dict(_facts(settings)),
                "lacks": [asdict(lack) for lack in (*missing, *seen.lacks)],
            }
        )
    else:
        _show(settings, seen, missing, healthy=healthy)
    raise typer.Exit(Exit.OK if healthy else Exit.ERROR)


def _examine(settings: Settings) -> tuple[Fingerprint, list[Lack]]:
    """With the pool as it is, if a platform has opened it (and this user may look), what runs, and what was
    tried."""
    walls = namespaces_settings(settings)
    pool = look_at_pool(walls)
    try:
        seen, missing = examine(walls, pool), list(tried(settings, pool))
    finally:
        if pool is not None:
            pool.close()
    older = lack_of_new_walls(behind_older_walls(walls))
    # Neither keeps this host from making sandboxes.
    also = (*(() if older is None else (older,)), *payments_off(settings))
    return replace(seen, lacks=(*seen.lacks, *also)), missing


def _show(settings: Settings, seen: Fingerprint, missing: list[Lack], *, healthy: bool) -> None:
    rows = [(wall.value, *_verdict(wall, seen)) for wall in Wall]
    out.print(columns(rows, "WALL", "", "WHY"))
    lacks = [*missing, *seen.lacks]
    if lacks:
        told = [(Text(lack.what, style="yellow"), lack.why, lack.remedy) for lack in lacks]
        out.print(columns(told, "\nLACKS", "\nWHY", "\nREMEDY"))
    out.print(facts_table([*seen.facts.items(), *_facts(settings)], title="\nThis host"))
    verdict = "[bold green]can make sandboxes[/]" if healthy else "[bold red]cannot make sandboxes[/]"
    out.print(f"\nThis host {verdict} with ext.namespaces.")


def _verdict(wall: Wall, seen: Fingerprint) -> tuple[Text, str]:
    if wall in seen.walls:
        return Text("yes", style="green"), ""
    why = [lack.why for lack in seen.lacks if lack.what.startswith(wall.value)]
    if wall in AT_START and seen.healthy and not why:
        return Text("at start", style="cyan"), AT_START[wall]
    return Text("no", style="red"), "; ".join(why) or "see below"


def _not_ready(settings: Settings) -> Iterator[Lack]:
    """What a first create would stumble over besides the walls."""
    if not list_images(settings.images_dir):
        yield Lack(
            what="base image",
            why=f"there is none in {settings.images_dir}",
            remedy=f"sandboxer image build base --state-dir {settings.state_dir}",
        )
    free = _free_bytes(settings.state_dir)
    if free < NEEDED_FREE_GB * 2**30:
        yield Lack(
            what="disk",
            why=f"{size(free)} free for {settings.state_dir}",
            remedy=f"free {NEEDED_FREE_GB} GiB, or choose another --state-dir",
        )
    place = _existing(settings.state_dir)
    if not os.access(place, os.W_OK):
        yield Lack(
            what="state folder",
            why=f"{place} is not writable for this user",
            remedy="run as root, or choose another --state-dir",
        )


def _facts(settings: Settings) -> Iterator[tuple[str, str]]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    yield "cpus", str(os.cpu_count())
    yield "memory", size(memory)
    yield "free disk", size(_free_bytes(settings.state_dir))
    yield "images", ", ".join(image.name for image in list_images(settings.images_dir)) or "none"
    yield "state folder", str(settings.state_dir)


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder
