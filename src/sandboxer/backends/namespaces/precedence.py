"""Applies who comes last on the processor. Who that is, is decided above (`sandboxes/precedence.py`): here
sandboxes have no accounts. Everything here blocks: it reads and writes small files of the kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator

from sandboxer.backends.namespaces.box import Box
from sandboxer.backends.namespaces.dependencies import BackendDependencies


class Precedence:
    def __init__(self, dependencies: BackendDependencies) -> None:
        self._dependencies = dependencies
        # None: a server that was killed may have left some.
        self._last: frozenset[str] | None = None

    def of_all(self) -> float:
        return self._dependencies.cgroups.processor_s()

    def of_each(self) -> dict[str, float]:
        cgroups = self._dependencies.cgroups
        return {box.sandbox_id: cgroups.processor_s(box.sandbox_id) for box in self._running()}

    def give_way(self, sandbox_ids: Collection[str]) -> None:
        cgroups = self._dependencies.cgroups
        if not cgroups.hierarchies.has("cpu"):
            return
        wanted = frozenset(sandbox_ids)
        for box in self._running():
            # Those that come last are told so each time: other limits for one end it.
            is_left = cgroups.is_last(box.sandbox_id) if self._last is None else box.sandbox_id in self._last
            if is_left or box.sandbox_id in wanted:
                with contextlib.suppress(OSError):
                    cgroups.set_last(box.sandbox_id, box.sandbox_id in wanted, box.vcpus)
        self._last = wanted

    def _running(self) -> Iterator[Box]:
        for box in list(self._dependencies.known.values()):
            if self._dependencies.has_processes(box):
                yield box
