"""`doctor`: what this host can and cannot do, why, and what to do about it. Leaves nothing changed.

It tries instead of believing: whether disks take writes, and what a running platform says. Which ways to be
paid are off, and why, is told by the platform that runs, or found by asking the nodes.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import httpx
import typer
from rich.text import Text

from sandboxer.artifacts.images import list_images
from sandboxer.backends.contract import Fingerprint, Lack, Wall
from sandboxer.backends.namespaces.box import lacks_of_older, running_boxes
from sandboxer.backends.namespaces.fingerprint import examine
from sandboxer.backends.namespaces.holdings import try_pool
from sandboxer.backends.namespaces.pool import Pool, look_at_pool
from sandboxer.backends.shared import write_there
from sandboxer.edges.cli.elsewhere import lacks_elsewhere
from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.options import Folder, Json
from sandboxer.edges.cli.output import columns, facts_table, lacks_list, out, plain, print_json, size
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.chains.configuration import open_chains
from sandboxer.payments.chains.contract import Checkable, Rails, Standings
from sandboxer.settings import Settings, load_settings
from sandboxer.settings.strangers import wall_of_strangers
from sandboxer.store.lock import is_held
from sandboxer.wiring import namespaces_settings

# Decided when the pool is opened, which a look must not do.
AT_START = {Wall.DISK: "known once the platform has opened its storage pool"}
NEEDED_FREE_GB = 2
DEADLINE_S = 8.0
PAYMENT_CHECKS = ("x402/", "invoices/")
REMEDY = "repair the node or the settings; the platform looks again by itself within a minute"
app = typer.Typer(rich_markup_mode="rich")


@app.command("doctor")
def doctor(state_dir: Folder = None, json: Json = False) -> None:
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
    # None of these keeps this host from making sandboxes.
    also = (*lacks_of_older(running_boxes(walls)), *lacks_elsewhere(settings), *payments_off(settings))
    return replace(seen, lacks=(*seen.lacks, *also)), missing


def _show(settings: Settings, seen: Fingerprint, missing: list[Lack], *, healthy: bool) -> None:
    rows = [(wall.value, *_verdict(wall, seen)) for wall in Wall]
    out.print(columns(rows, "WALL", "", "WHY"))
    lacks = [*missing, *seen.lacks]
    if lacks:
        out.print(lacks_list(lacks))
    out.print(facts_table([*seen.facts.items(), *_facts(settings)], title="\nThis host"))
    verdict = "[bold green]can make sandboxes[/]" if healthy else "[bold red]cannot make sandboxes[/]"
    out.print(f"\nThis host {verdict} with ext.namespaces.")
    for lack in () if healthy else missing:
        out.print(plain(f"It lacks {lack.what}: {lack.remedy}"), soft_wrap=True)


def _verdict(wall: Wall, seen: Fingerprint) -> tuple[Text, str]:
    if wall in seen.walls:
        return Text("yes", style="green"), ""
    why = [lack.why for lack in seen.lacks if lack.what.startswith(wall.value)]
    if wall in AT_START and seen.healthy and not why:
        return Text("at start", style="cyan"), AT_START[wall]
    return Text("no", style="red"), "; ".join(why) or "see below"


def _not_ready(settings: Settings) -> Iterator[Lack]:
    """Says what a first create would fail at besides the walls."""
    if not list_images(settings.images_dir):
        yield Lack(
            what="base image",
            why=f"there is none in {settings.images_dir}",
            remedy=f"sandboxer image build base --state-dir {settings.state_dir}",
        )
    if (free := _free_bytes(settings.state_dir)) < NEEDED_FREE_GB * 2**30:
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
    yield "wall of strangers", wall_of_strangers(settings)


def _free_bytes(folder: Path) -> int:
    return shutil.disk_usage(_existing(folder)).free


def _existing(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent
    return folder


def tried(settings: Settings, pool: Pool | None) -> Iterator[Lack]:
    is_served = settings.state_dir.exists() and is_held(settings.state_dir)
    if settings.state_dir.is_dir():
        yield from _disk(
            "state folder", lambda: write_there(settings.state_dir), "free space, or repair the disk"
        )
    if pool is not None:
        yield from _disk("storage pool", lambda: try_pool(pool), "see docs/guides/runbooks/disk-full.md")
    elif is_served and namespaces_settings(settings).pool_file.exists():
        yield Lack(
            what="storage pool",
            why=f"a platform runs, but its pool is not mounted at {settings.state_dir / 'pool'}",
            remedy="stop the platform and start it: it mounts the pool again",
        )
    if is_served:
        yield from _served(settings.owner_file)


def _disk(what: str, attempt: Callable[[], None], remedy: str) -> Iterator[Lack]:
    """With a deadline: a disk that hangs must not take this command with it."""
    found: list[str] = []

    def run() -> None:
        try:
            attempt()
        except Exception as error:
            found.append(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(DEADLINE_S)
    if thread.is_alive():
        found.append(f"it does not answer within {DEADLINE_S:g} s")
    for why in found:
        yield Lack(what=what, why=why, remedy=remedy)


def _served(owner_file: Path) -> Iterator[Lack]:
    """The platform that has this state folder knows best what it cannot do."""
    remedy = "read the platform's log; stop it and start it"
    try:
        url = str(json.loads(owner_file.read_text())["url"])
        answer = httpx.get(f"{url}/health", timeout=DEADLINE_S, trust_env=False)
        checks: dict[str, str] = answer.json().get("checks", {})
    except (OSError, ValueError, KeyError, httpx.HTTPError) as error:
        yield Lack(what="running platform", why=f"it does not say how it is: {error}", remedy=remedy)
        return
    for name, check in checks.items():
        # Ways to be paid are told with their reasons, and keep nobody from making sandboxes.
        if check != "ok" and not name.startswith(PAYMENT_CHECKS):
            yield Lack(what="running platform", why=f"its {name} is failing", remedy=remedy)


def payments_off(settings: Settings) -> Iterator[Lack]:
    is_served = settings.state_dir.exists() and is_held(settings.state_dir)
    if is_served:
        yield from _asked_of_server(settings)
    elif settings.chains:
        yield from asyncio.run(_asked(settings))


def _asked_of_server(settings: Settings) -> Iterator[Lack]:
    try:
        url = str(json.loads(settings.owner_file.read_text())["url"])
        answer = httpx.get(f"{url}/v1/pricing", timeout=DEADLINE_S, trust_env=False)
        prices: dict[str, Any] = answer.json()
    except (OSError, ValueError, KeyError, httpx.HTTPError):
        # That it does not answer is told already.
        return
    rails = [(each["network"], each) for each in prices.get("networks", ())]
    rails += [(each["coin"], each) for each in prices.get("coins", ())]
    for name, standing in rails:
        if not standing["is_on"]:
            yield _lack(name, str(standing.get("reason")))


async def _asked(settings: Settings) -> list[Lack]:
    """Only whether the nodes are the right ones: whether their wallets are, is seen at the start, which makes
    a missing one."""
    standings = Standings()
    try:
        async with open_chains(settings.chain_plans) as chains:
            checks = {code: each.why_wrong for code, each in chains.items() if isinstance(each, Checkable)}
            await Rails(standings, checks, SystemClock()).check_all()
    except InvalidRequest as error:
        return [_lack("invoices", str(error))]
    return [_lack(code, why) for code in settings.chains if (why := standings.why_off(code)) is not None]


def _lack(rail: str, why: str) -> Lack:
    return Lack(what=f"payments in {rail}", why=why, remedy=REMEDY)
