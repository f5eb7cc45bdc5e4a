"""What `doctor` tries instead of believing: whether disks take writes, and what a running platform says."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx

from sandboxer.backends.contract import Lack
from sandboxer.backends.disk_probe import write_there
from sandboxer.backends.namespaces.health import try_pool
from sandboxer.backends.namespaces.pool import Pool
from sandboxer.settings import Settings
from sandboxer.store.lock import is_held
from sandboxer.wiring import namespaces_settings

DEADLINE_S = 8.0
PAYMENT_CHECKS = ("x402/", "invoices/")


def tried(settings: Settings, pool: Pool | None) -> Iterator[Lack]:
    is_served = settings.state_dir.exists() and is_held(settings.state_dir)
    if settings.state_dir.is_dir():
        yield from _disk(
            "state folder", lambda: write_there(settings.state_dir), "free space, or mend the disk"
        )
    if pool is not None:
        yield from _disk("storage pool", lambda: try_pool(pool), "see docs/runbooks/disk-full.md")
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
