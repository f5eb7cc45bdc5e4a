"""The way to the threads that write, or to those that read: bounded, and closed while the database is away.

A lane whose jobs do not come back in time refuses new ones at once, so that callers are told to retry instead
of waiting behind each other. Who watches the store (`Store.watch`) tries again every second and opens it.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Sequence
from typing import Any, TypeVar

from sandboxer.store.jobs import Job, Patience, away
from sandboxer.store.workers import Worker

log = logging.getLogger(__name__)
T = TypeVar("T")
Jobs = queue.SimpleQueue[Job[Any] | None]

# More waiting than this means the database has stopped keeping up: say so instead of growing.
MAX_WAITING = 10_000
LATE_IN_A_ROW = 2


class Lane:
    def __init__(self, name: str, jobs: Jobs, workers: Sequence[Worker]) -> None:
        self._name = name
        self._jobs = jobs
        self._workers = workers
        self._under_way: set[Job[Any]] = set()
        # Only somebody who tries again by himself may close it.
        self.is_watched = False
        self.is_away = False
        self._late_in_a_row = 0
        self._late_at_most = LATE_IN_A_ROW

    async def ask(self, job: Job[T], *, is_probe: bool = False) -> T:
        if self.is_away and not is_probe:
            raise away("the database does not answer")
        if self._jobs.qsize() >= MAX_WAITING:
            raise away("the database does not keep up with what is asked of it")
        self._jobs.put(job)
        self._under_way.add(job)
        try:
            return await job.outcome()
        finally:
            self._under_way.discard(job)
            if job.is_trusted:
                self._learn(job.is_late)

    def hurry(self, patience: Patience) -> None:
        """The server ends. One that is late from now on is the last that is waited for: those who close one
        after the other would each wait as long."""
        self._late_at_most = 1
        for job in tuple(self._under_way):
            job.hurry(patience)

    def end(self) -> None:
        for _ in self._workers:
            self._jobs.put(None)

    def cut(self) -> None:
        for worker in self._workers:
            worker.interrupt()

    def join(self, until: float | None) -> bool:
        """Whether all have ended by that moment of the monotonic clock; None: wait for ever."""
        ended = [
            worker.join(None if until is None else max(0.0, until - time.monotonic()))
            for worker in self._workers
        ]
        return all(ended)

    def _learn(self, is_late: bool) -> None:
        """One that is late may be a busy machine; several without any that was in time are not."""
        self._late_in_a_row = self._late_in_a_row + 1 if is_late else 0
        is_away = self._late_in_a_row >= self._late_at_most
        if self.is_watched and is_away != self.is_away:
            self.is_away = is_away
            if is_away:
                log.error("the database does not answer (%s): requests are refused until it does", self._name)
            else:
                log.warning("the database answers again (%s)", self._name)
