"""Describes one requested transaction: who waits for it, and for how long.

A job waits so long for its turn; one that never had it was not done, and its caller is told so. One that a
thread has in hand is interrupted when its time is over. If even that does not end it, its caller is told that
nobody knows: a thread that hangs in the kernel must not take every caller with it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sqlalchemy import Connection

from sandboxer.kernel.errors import FateUnknown, Unavailable

log = logging.getLogger(__name__)
T = TypeVar("T")
RETRY_AFTER_S = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits how long a job waits for its turn, may then take, and is waited for after it was interrupted."""

    turn_s: float
    run_s: float
    end_s: float = 2.0


class Interruptible(Protocol):
    """The thread that carries out a job and can be interrupted."""

    def interrupt(self, *, busy_for_s: float) -> None: ...


def away(why: str) -> Unavailable:
    return Unavailable(why=why, retry_after_s=RETRY_AFTER_S, hint="Retry in a few seconds.")


class Job(Generic[T]):
    """One requested transaction, and how its result reaches the caller."""

    __slots__ = (
        "_error",
        "_future",
        "_is_given_up",
        "_listener",
        "_patience",
        "_places",
        "_result",
        "_timer",
        "_worker",
        "acquired_at",
        "fn",
        "is_delivered",
        "is_late",
        "is_trusted",
        "loop",
        "topics",
    )

    def __init__(
        self,
        fn: Callable[[Connection], T],
        listener: Callable[[frozenset[str]], None] | None,
        patience: Patience | None = None,
    ) -> None:
        self.fn = fn
        self.topics: frozenset[str] = frozenset()
        self.is_delivered = False
        # It did not come in time: the database, or the queue before it, is not well.
        self.is_late = False
        # One with little patience says nothing of those who have more, and must not end what they wait for.
        self.is_trusted = True
        self.loop = asyncio.get_running_loop()
        self.acquired_at = 0.0
        self._future: asyncio.Future[None] = self.loop.create_future()
        self._listener = listener
        self._result: T | None = None
        self._error: BaseException | None = None
        self._is_given_up = False
        # Whoever takes the one place has it: the worker to carry it out, or its caller to withdraw it.
        self._places = [True]
        self._worker: Interruptible | None = None
        self._patience = patience
        self._timer: asyncio.TimerHandle | None = None
        if patience is not None:
            self._timer = self.loop.call_later(patience.turn_s, self._turn_is_over)

    def take(self, worker: Interruptible | None = None) -> bool:
        """Marks the job as begun. Returns False if its caller has withdrawn it: then nothing may be done."""
        try:
            self._places.pop()
        except IndexError:
            return False
        self._worker, self.acquired_at = worker, time.monotonic()
        return True

    def is_overdue(self) -> bool:
        """Says whether it is too late to try it (again)."""
        return self._patience is not None and time.monotonic() - self.acquired_at >= self._patience.run_s

    def hurry(self, patience: Patience) -> None:
        """Shortens the time that it still has. Called on the loop."""
        if self._timer is None or self.is_delivered or self._is_given_up:
            return
        self._timer.cancel()
        self._patience = patience
        left = patience.turn_s if self._places else patience.run_s
        self._timer = self.loop.call_later(left, self._turn_is_over)

    async def outcome(self) -> T:
        """Returns the result once the transaction is over.

        If the caller is cancelled meanwhile, the cancellation waits for that too: whoever cleans up
        afterwards never races the transaction it gave up on.
        """
        cancelled: asyncio.CancelledError | None = None
        while not (self.is_delivered or self._is_given_up):
            try:
                await self._future
            except asyncio.CancelledError as error:
                cancelled = error
                self._future = self.loop.create_future()
        if cancelled is not None:
            raise cancelled
        if self._is_given_up and not self.is_delivered:
            raise self._unknown()
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def settle(self, result: T | None, error: BaseException | None) -> None:
        """Records the result. The caller gets it with `deliver`."""
        self._result, self._error = result, error
        if error is not None:
            self.topics = frozenset()

    def deliver(self) -> None:
        """Gives the result to the caller. Called on the caller's loop."""
        self.is_delivered = True
        self._wake()
        if self.topics and self._listener is not None:
            self._listener(self.topics)

    def _wake(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._future.done():
            self._future.set_result(None)

    def _turn_is_over(self) -> None:
        self.is_late = True
        if self.take():
            self.settle(None, away("the database does not answer; nothing of this was done"))
            self.deliver()
            return
        patience = self._patience or Patience(turn_s=0, run_s=0)
        left = self.acquired_at + patience.run_s - time.monotonic()
        # Whoever was taken in the meantime has the time of its transaction still before it.
        self.is_late = left <= 0
        self._timer = self.loop.call_later(max(0.0, left), self._run_is_over)

    def _run_is_over(self) -> None:
        self.is_late = True
        patience = self._patience or Patience(turn_s=0, run_s=0)
        if self._worker is not None and self.is_trusted:
            self._worker.interrupt(busy_for_s=patience.run_s * 0.9)
        self._timer = self.loop.call_later(patience.end_s, self._give_up)

    def _give_up(self) -> None:
        log.error("a transaction does not end although its connection was cut; its caller goes on without it")
        self._is_given_up = True
        self._wake()

    def _unknown(self) -> Unavailable:
        if self._listener is None:
            return away("the database does not answer")
        return FateUnknown(
            why="the database does not answer, and the transaction had begun", retry_after_s=RETRY_AFTER_S
        )


def deliver_all(jobs: Sequence[Job[Any]]) -> None:
    """Delivers results to the callers, from the worker's thread. Each loop is woken once."""
    for loop in dict.fromkeys(job.loop for job in jobs):
        mine = [job for job in jobs if job.loop is loop]
        try:
            loop.call_soon_threadsafe(_deliver, mine)
        except RuntimeError:
            log.debug("the loop that asked for a transaction is closed")


def _deliver(jobs: Sequence[Job[Any]]) -> None:
    for job in jobs:
        job.deliver()
