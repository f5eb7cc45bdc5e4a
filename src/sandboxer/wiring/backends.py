"""Opens the backends that the settings name, and checks that their disks belong to the database."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import field

from sqlalchemy import Connection, func, select

from sandboxer.artifacts.images.published.records import published_images
from sandboxer.artifacts.images.published.records import rows as image_rows
from sandboxer.artifacts.snapshots.records import rows as snapshot_rows
from sandboxer.artifacts.snapshots.records import snapshots
from sandboxer.artifacts.volumes.records import rows as volume_rows
from sandboxer.artifacts.volumes.records import volumes
from sandboxer.backends.contract import Backend
from sandboxer.backends.namespaces.settings import NamespacesSettings, Overcommit
from sandboxer.backends.registry import experimental_reason, find_extension, find_opener
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError
from sandboxer.kernel.values import brief_value_class
from sandboxer.sandboxes.binding import Records, bind
from sandboxer.sandboxes.records import sandboxes
from sandboxer.settings import Settings
from sandboxer.store.engine import Store
from sandboxer.wiring.extensions import load_extensions

log = logging.getLogger(__name__)


@brief_value_class
class BoundBackends:
    """Holds backends whose disks belong to the database."""

    backends: Mapping[str, Backend]
    # The operator put the two together.
    is_adopted: bool
    # Whose disks are known to be the database's, and are marked as that.
    marked: Mapping[str, Backend]
    # Those at somebody who charges for each sandbox.
    metered: frozenset[str] = frozenset()
    # Why nobody should rely on these yet.
    experimental: Mapping[str, str] = field(default_factory=dict)


async def open_bound(
    settings: Settings,
    store: Store,
    clock: Clock,
    given: Mapping[str, Backend] | None,
    closing: AsyncExitStack,
    *,
    names: Sequence[str],
) -> BoundBackends:
    """Opens the backends given, or those of `names`, before anything is written. Raises Conflict if this is
    the wrong database for their disks.
    """
    added = next((name for name in names if name not in settings.backends), "")
    backends = await open_backends(settings, closing, names=names, added=added) if given is None else given
    bound = await bind(
        store,
        backends,
        clock=clock,
        read_records=records_of_disks,
        state_dir=settings.state_dir,
        database=store.database.url.render_as_string(hide_password=True),
    )
    marked = {name: one for name, one in backends.items() if name not in bound.unasked}
    if given is not None:
        return BoundBackends(backends, bound.is_adopted, marked)
    files = load_extensions(settings.extensions_dir)
    extensions = {name: find_extension(name, files) for name in backends}
    reasons = {name: experimental_reason(name, files) for name in backends}
    return BoundBackends(
        backends,
        bound.is_adopted,
        marked,
        metered=frozenset(name for name, one in extensions.items() if one.is_metered),
        experimental={name: why for name, why in reasons.items() if why is not None},
    )


async def open_backends(
    settings: Settings, closing: AsyncExitStack, *, names: Sequence[str] | None = None, added: str = ""
) -> Mapping[str, Backend]:
    """Opens the backends of these names, or those that the settings name. `added` is one that nobody named:
    the platform starts without it if it cannot be opened.
    """
    opened, files = {}, load_extensions(settings.extensions_dir)
    for name in settings.backends if names is None else names:
        opener = find_opener(name, files)
        own = namespaces_settings(settings) if name == "ext.namespaces" else settings
        try:
            backend = await closing.enter_async_context(opener(own))
        except (SandboxerError, OSError) as error:
            if name != added:
                raise
            log.warning("%s could not be opened, so strangers get no kernel of their own: %s", name, error)
            continue
        opened[backend.name] = backend
    return opened


def namespaces_settings(settings: Settings) -> NamespacesSettings:
    """Returns the settings of the default backend."""
    return NamespacesSettings(
        state_dir=settings.state_dir,
        images_dir=settings.images_dir,
        guest_dir=settings.guest_dir,
        pool_size_mb=settings.pool_size_mb,
        uid_base=settings.uid_base,
        overcommit=Overcommit(
            memory=settings.overcommit_memory,
            cpu=settings.overcommit_cpu,
            pids=settings.overcommit_pids,
            disk=settings.overcommit_disk,
        ),
    )


def records_of_disks(conn: Connection) -> Records:
    """Returns what this database says of disks, of whatever kind."""
    tables = (sandboxes, snapshots, published_images, volumes)
    rows = sum(conn.execute(select(func.count()).select_from(table)).scalar_one() for table in tables)
    held = Counter(conn.execute(select(sandboxes.c.backend).where(sandboxes.c.handle.is_not(None))).scalars())
    kept = (*snapshot_rows.living(conn), *image_rows.living(conn), *volume_rows.living(conn))
    held.update(one.backend for one in kept)
    return Records(is_empty=rows == 0, disks=held.total(), by_backend=dict(held))
