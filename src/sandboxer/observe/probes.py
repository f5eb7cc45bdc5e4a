"""Tries each part that an answer needs, with a deadline, to learn whether the platform is healthy.

Anyone may ask, uncounted: so an answer is kept for a moment, and however many ask, each part is tried by one
at a time. A try that hangs (a disk that does not answer) is not begun again beside itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from sandboxer.kernel.tasks import TaskOwner

log = logging.getLogger(__name__)
KEPT_S = 1.0
ANSWERS_WITHIN_S = 3.0

# Raises if the part is ill.
Try = Callable[[], Awaitable[None]]
# Parts that are ill, by name, and why; those that are well, with None.
Findings = Mapping[str, str | None]


class Probe:
    """Tries one part: holds its last result and the try that is under way."""

    def __init__(self, name: str, attempt: Try, owner: TaskOwner) -> None:
        self.name = name
        self._attempt = attempt
        self._owner = owner
        self._task: asyncio.Task[None] | None = None
        self._why: str | None = None
        self._reported: str | None = None

    async def finding(self) -> str | None:
        """Tries the part and returns what is wrong with it, or None."""
        if self._task is None or self._task.done():
            self._task = self._owner.start(self._run(), name=f"probe {self.name}")
        done, _ = await asyncio.wait({self._task}, timeout=ANSWERS_WITHIN_S)
        why = self._why if done else f"no answer within {ANSWERS_WITHIN_S:g} s"
        self._report(why)
        return why

    async def _run(self) -> None:
        try:
            await self._attempt()
        except Exception as error:
            # Whatever it is, it is the answer to the question.
            self._why = str(error) or type(error).__name__
        else:
            self._why = None

    def _report(self, why: str | None) -> None:
        """Logs a failure once when it begins and once when it ends."""
        if (why is None) == (self._reported is None):
            return
        self._reported = why
        if why is None:
            log.warning("health: %s is well again", self.name)
        else:
            log.error("health: %s fails: %s", self.name, why)


class Probes:
    def __init__(self, owner: TaskOwner) -> None:
        self._owner = owner
        self._probes: list[Probe] = []
        self._looked_at = 0.0
        self._found: Findings = {}
        self._one_at_a_time = asyncio.Lock()

    def add(self, name: str, attempt: Try) -> None:
        self._probes.append(Probe(name, attempt, self._owner))

    async def look(self) -> Findings:
        """Tries all parts. Returns within little more than `ANSWERS_WITHIN_S`, whatever hangs."""
        async with self._one_at_a_time:
            if not self._found or time.monotonic() - self._looked_at > KEPT_S:
                self._found = await self._look()
                self._looked_at = time.monotonic()
            return self._found

    async def _look(self) -> Findings:
        found: dict[str, str | None] = {}
        async with asyncio.TaskGroup() as group:
            asked = {probe.name: group.create_task(probe.finding()) for probe in self._probes}
        for name, task in asked.items():
            found[name] = task.result()
        return found
