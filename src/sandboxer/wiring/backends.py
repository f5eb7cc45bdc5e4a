"""The backends that the settings name."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack

from sandboxer.backends.contract import Backend
from sandboxer.backends.namespaces.settings import NamespacesSettings, Overcommit
from sandboxer.backends.registry import find_opener
from sandboxer.settings import Settings


async def open_backends(settings: Settings, closing: AsyncExitStack) -> Mapping[str, Backend]:
    opened = {}
    for name in settings.backends:
        opener = find_opener(name)
        own = namespaces_settings(settings) if name == "ext.namespaces" else settings
        backend = await closing.enter_async_context(opener(own))
        opened[backend.name] = backend
    return opened


def namespaces_settings(settings: Settings) -> NamespacesSettings:
    """What the default backend needs to know of the settings."""
    return NamespacesSettings(
        state_dir=settings.state_dir,
        images_dir=settings.images_dir,
        guest_dir=settings.guest_dir,
        pool_size_mb=settings.pool_size_mb,
        overcommit=Overcommit(
            memory=settings.overcommit_memory, cpu=settings.overcommit_cpu, pids=settings.overcommit_pids
        ),
    )
