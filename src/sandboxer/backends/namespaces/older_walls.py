"""Sandboxes that were started behind older walls than a new one would be.

They keep working: what was made stays as it was made, and an upgrade of the server changes nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from sandboxer.backends.contract import Lack
from sandboxer.backends.namespaces.box import Box, Stage, read_box
from sandboxer.backends.namespaces.recovery import boot_id
from sandboxer.backends.namespaces.settings import NamespacesSettings
from sandboxer.backends.namespaces.walls import WALLS_VERSION
from sandboxer.kernel.ids import is_sandbox_id

# Named one by one up to here.
NAMED = 10


def behind_older_walls(settings: NamespacesSettings) -> list[Box]:
    """Those that run now, by their records on disk. Looks, changes nothing; an unreadable folder has none."""
    try:
        ids = sorted(name for name in os.listdir(settings.run_dir) if is_sandbox_id(name))
        found = [read_box(settings.run_dir / sandbox_id) for sandbox_id in ids]
    except OSError:
        return []
    return [box for box in found if box is not None and is_behind(box, boot_id())]


def is_behind(box: Box, boot: str) -> bool:
    return box.stage is Stage.RUNNING and box.boot_id == boot and box.walls < WALLS_VERSION


def lack_of_new_walls(boxes: Iterable[Box]) -> Lack | None:
    ids = [box.sandbox_id for box in boxes]
    if not ids:
        return None
    more = f" and {len(ids) - NAMED} more" if len(ids) > NAMED else ""
    return Lack(
        what="the newest walls",
        why=f"started before the last upgrade of the walls: {', '.join(ids[:NAMED])}{more}",
        remedy="stop and resume each (or destroy it): it then starts behind the newest walls",
    )
