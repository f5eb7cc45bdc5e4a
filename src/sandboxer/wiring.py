"""Where the rooms meet: the only place that knows concrete classes, and the order in which they open and close."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandboxer.backends.contract import Backend
from sandboxer.kernel.clock import Clock, SystemClock
from sandboxer.kernel.errors import Conflict
from sandboxer.observe.events import Events
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.settings import Settings
from sandboxer.store.engine import Store, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class Platform:
    """Everything an edge may hold. `keys`, `authenticator` and `work` join as their rooms are built."""

    settings: Settings
    clock: Clock
    store: Store
    events: Events
    sandboxes: SandboxUseCases


@asynccontextmanager
async def open_platform(settings: Settings, *, clock: Clock | None = None) -> AsyncIterator[Platform]:
    """A running platform: reconciled, its loops turning. On leaving, sandboxes keep running."""
    raise NotImplementedError
    yield
