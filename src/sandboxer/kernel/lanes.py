"""Work that grows with a tenant's input, beside the event loop: in few threads, which accounts take in turn.

Hashing, reading and writing of large bodies goes through here. An account has one piece of work under way;
the next free thread goes to the account whose turn it is, however much another one has waiting. The seconds
that its work took are spent from the account's allowance, which refills: who has used it up waits for the
refill, and is refused if that would take too long. The host's share is its threads.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from sandboxer.kernel.errors import OverBudget

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBounds:
    threads: int = 2
    # Of one account, waiting for its turn.
    waiting: int = 64
    # Seconds of work that an account may do at a stretch, and what it gets back in a second.
    stretch_s: float = 10.0
    refill: float = 0.25
    # How long an account that has used up its seconds waits for more before it is refused.
    wait_s: float = 10.0


class Allowances(Protocol):
    """Seconds of work by account, as one number each: several processes of one host would share them."""

    def owed_s(self, name: str, now: float) -> float:
        """How long until the account may work again; 0 if it may now."""
        ...

    def spend(self, name: str, seconds: float, now: float) -> None: ...


class LocalAllowances:
    """Those of one process: for each account the moment at which its allowance is whole again."""

    def __init__(self, bounds: WorkBounds) -> None:
        self._stretch_s = bounds.stretch_s / bounds.refill
        self._refill = bounds.refill
        self._whole_at: dict[str, float] = {}

    def owed_s(self, name: str, now: float) -> float:
        return max(0.0, self._whole_at.get(name, now) - now - self._stretch_s)

    def spend(self, name: str, seconds: float, now: float) -> None:
        if len(self._whole_at) > 1000:
            self._whole_at = {one: at for one, at in self._whole_at.items() if at > now}
        self._whole_at[name] = max(now, self._whole_at.get(name, now)) + seconds / self._refill


@dataclass(slots=True, eq=False)
class _Piece:
    act: Callable[[], object]
    done: asyncio.Future[object]


@dataclass(slots=True)
class Lanes:
    bounds: WorkBounds = field(default_factory=WorkBounds)
    allowances: Allowances | None = None
    _threads: ThreadPoolExecutor | None = None
    _waiting: OrderedDict[str, deque[_Piece]] = field(default_factory=OrderedDict)
    _busy: set[str] = field(default_factory=set)

    async def run(self, account: str, act: Callable[[], T]) -> T:
        """`act` in a thread, when it is this account's turn. Raises OverBudget."""
        await self._wait_for_allowance(account)
        lane = self._waiting.setdefault(account, deque())
        if len(lane) >= self.bounds.waiting:
            raise OverBudget(
                why=f"{len(lane)} of your requests wait for work on large bodies",
                limit=self.bounds.waiting,
                retry_after_s=5,
            )
        piece = _Piece(act, asyncio.get_running_loop().create_future())
        lane.append(piece)
        self._start_next()
        try:
            return await piece.done  # type: ignore[return-value]
        finally:
            # Nobody wants it any more: it is not begun, if it was not.
            if piece in lane:
                lane.remove(piece)

    def close(self) -> None:
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _wait_for_allowance(self, account: str) -> None:
        while owed := self._seconds().owed_s(account, time.monotonic()):
            if owed > self.bounds.wait_s:
                raise OverBudget(
                    why=f"they have used up {self.bounds.stretch_s:g} s of work on large bodies",
                    limit=self.bounds.stretch_s,
                    retry_after_s=int(owed) + 1,
                )
            await asyncio.sleep(owed)

    def _start_next(self) -> None:
        while len(self._busy) < self.bounds.threads:
            account = next(
                (one for one, lane in self._waiting.items() if lane and one not in self._busy), None
            )
            if account is None:
                break
            self._waiting.move_to_end(account)
            self._start(account, self._waiting[account].popleft())
        for account in [one for one, lane in self._waiting.items() if not lane and one not in self._busy]:
            del self._waiting[account]

    def _start(self, account: str, piece: _Piece) -> None:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.bounds.threads, thread_name_prefix="beside")
        self._busy.add(account)
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._threads, _timed, piece.act)
        running.add_done_callback(lambda done: self._ended(account, piece, done))

    def _ended(self, account: str, piece: _Piece, ended: asyncio.Future[_Timed]) -> None:
        self._busy.discard(account)
        if not ended.cancelled():
            timed = ended.result()
            self._seconds().spend(account, timed.seconds, time.monotonic())
            if not piece.done.done():
                if timed.error is None:
                    piece.done.set_result(timed.value)
                else:
                    piece.done.set_exception(timed.error)
        self._start_next()

    def _seconds(self) -> Allowances:
        if self.allowances is None:
            self.allowances = LocalAllowances(self.bounds)
        return self.allowances


@dataclass(frozen=True, slots=True)
class _Timed:
    value: object
    error: Exception | None
    seconds: float


def _timed(act: Callable[[], object]) -> _Timed:
    """What it gave and how long it had the processor: waiting for others' work is not charged."""
    began = time.thread_time()
    try:
        value, error = act(), None
    except Exception as raised:
        value, error = None, raised
    return _Timed(value, error, time.thread_time() - began)
