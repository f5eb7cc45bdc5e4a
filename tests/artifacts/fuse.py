"""A process that kills itself at its n-th step: before a transaction, a change of the pool or of a record."""

from __future__ import annotations

import os
import pathlib
import signal
import threading
from collections.abc import Callable
from functools import wraps
from typing import Any

from sandboxer.backends.namespaces import btrfs
from sandboxer.backends.namespaces.launcher import Launcher
from sandboxer.store.engine import Store

_POOL = ("create_subvolume", "delete_subvolume", "snapshot", "exchange", "limit")
_FILES = ("rename", "mkdir", "rmdir", "unlink", "symlink")


class Fuse:
    """Burns only while it is lit. Between two steps nothing changes that outlives the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: int | None = None
        self.steps = 0

    def light(self, at: int) -> None:
        self.steps, self._at = 0, at

    def put_out(self) -> None:
        self._at = None

    def step(self) -> None:
        with self._lock:
            if self._at is None:
                return
            self.steps += 1
            if self.steps == self._at:
                os.kill(os.getpid(), signal.SIGKILL)

    def lay(self, *more: tuple[object, tuple[str, ...]]) -> None:
        """Through everything of ours that changes what outlives us, and these names of these places."""
        own = ((btrfs, _POOL), (os, _FILES), (pathlib.Path, ("write_text",)))
        for place, names in (*own, *more):
            for name in names:
                setattr(place, name, self._before(getattr(place, name)))
        # They return awaitables: a call is where they begin.
        for owner, name in ((Store, "write"), (Launcher, "launch")):
            setattr(owner, name, self._before(getattr(owner, name)))

    def _before(self, act: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(act)
        def stepping(*args: Any, **kwargs: Any) -> Any:
            self.step()
            return act(*args, **kwargs)

        return stepping
