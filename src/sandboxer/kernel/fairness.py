"""Shares this process among accounts: its worker threads, its event loop and the processor.

**AccountQueues**: work that grows with a tenant's input is done beside the event loop, in few threads, which
accounts take in turn. Hashing, reading and writing of large bodies goes through here. An account has one
piece of work under way; the next free thread goes to the account whose turn it is, however much another one
has waiting. The seconds that its work took are spent from the account's allowance, which refills: who has
used it up waits for the refill, and is refused if that would take too long. The host's share is its threads.

**Turns** on the event loop: what one account gets of it while others are there too. The loop serves whoever
is ready, however often that is the same account: fifty streams of one would each have their slice before
anybody else is heard, and so would a crowd of small requests. So the loop's time is counted for each account:
of requests step by step, of large work slice by slice (an answer put into JSON, frames of a WebSocket). Who
has had more than a share of it lately waits before the next request begins and between slices, as long as
another account is there.

**HostWork**: what the host does for an account beside its sandboxes' own programs, such as making and
removing them, is counted for the account wherever it is done: the task knows on whose behalf it runs. An
account that gives way on the processor has one such piece of work after another, and as long a rest between.

**Priority**: on the processor the loop comes first that everybody waits for, and last what works for one
tenant.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import sys
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from sandboxer.kernel.errors import OverBudget
from sandboxer.kernel.values import brief_value_class, value_class

T = TypeVar("T")
# What moving bytes through a socket costs the loop beside making them.
_BYTES_A_SECOND = 1e9
# A request that lasts is counted while it does.
_COUNT_EVERY_S = 0.005
# The least that a request takes.
_BEGINNING_S = 0.0005
# Between two counts of who is there.
_RECOUNT_S = 0.1
# Accounts and addresses; above it those are forgotten that are not there any more.
_MOST_REMEMBERED = 1000
# Too little of the loop to be remembered.
_FADED_S = 1e-6
# As `nice` counts.
FIRST, LAST = -10, 10
# How long a thread that computes keeps the interpreter when the loop wants it: Python's own 5 ms would be
# waited for again and again by a request that takes 3 ms.
SWITCH_S = 0.0005


@value_class
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
    """Counts seconds of work for each account as one number, which several processes of one host could
    share.
    """

    def owed_s(self, name: str, now: float) -> float:
        """Returns how long until the account may work again; 0 if it may now."""
        ...

    def spend(self, name: str, seconds: float, now: float) -> None: ...


@dataclass(slots=True, eq=False)
class _Piece:
    act: Callable[[], object]
    done: asyncio.Future[object]


@brief_value_class
class _Timed:
    value: object
    error: Exception | None
    seconds: float


@value_class
class TurnBounds:
    # Of the loop's time, for one account, while another account asks for something too; among more it is
    # one part for each of them, or what those leave of this.
    share: float = 0.5
    # What it may take at a stretch before it waits.
    stretch_s: float = 0.05
    # For how long an account counts as there after its last request.
    there_s: float = 1.0
    longest_wait_s: float = 1.0


@dataclass(slots=True)
class _Recent:
    """Keeps the seconds of the loop that were had lately; they fade, to a third in the time given."""

    seconds: float = 0.0
    at: float = 0.0

    def left(self, now: float, fades_s: float) -> float:
        return self.seconds * math.exp(min(0.0, self.at - now) / fades_s)

    def add(self, seconds: float, now: float, fades_s: float) -> None:
        self.seconds, self.at = self.left(now, fades_s) + seconds, max(now, self.at)


class LocalAllowances:
    """Keeps the allowances of one process: for each account, the moment at which its allowance is full
    again.
    """

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


@dataclass(slots=True)
class AccountQueues:
    bounds: WorkBounds = field(default_factory=WorkBounds)
    allowances: Allowances | None = None
    _threads: ThreadPoolExecutor | None = None
    _waiting: OrderedDict[str, deque[_Piece]] = field(default_factory=OrderedDict)
    _busy: set[str] = field(default_factory=set)
    _worked_s: dict[str, float] = field(default_factory=dict)

    async def run(self, account: str, act: Callable[[], T]) -> T:
        """Runs `act` in a thread when it is this account's turn. Raises OverBudget."""
        await self._wait_for_allowance(account)
        queue = self._waiting.setdefault(account, deque())
        if len(queue) >= self.bounds.waiting:
            raise OverBudget(
                why=f"{len(queue)} of your requests wait for work on large bodies",
                limit=self.bounds.waiting,
                retry_after_s=5,
            )
        piece = _Piece(act, asyncio.get_running_loop().create_future())
        queue.append(piece)
        self._start_next()
        try:
            return await piece.done  # type: ignore[return-value]
        finally:
            # Nobody wants it any more: it is not begun, if it was not.
            if piece in queue:
                queue.remove(piece)

    def note(self, account: str, seconds: float) -> None:
        """Notes what was done for an account, here or elsewhere. May be called in any thread."""
        if len(self._worked_s) > _MOST_REMEMBERED:
            self._worked_s.clear()  # nobody asks
        self._worked_s[account] = self._worked_s.get(account, 0.0) + seconds

    def worked_s(self) -> dict[str, float]:
        """What was done for each account since this was last asked."""
        worked, self._worked_s = self._worked_s, {}
        return worked

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
                (one for one, queue in self._waiting.items() if queue and one not in self._busy), None
            )
            if account is None:
                break
            self._waiting.move_to_end(account)
            self._start(account, self._waiting[account].popleft())
        for account in [one for one, queue in self._waiting.items() if not queue and one not in self._busy]:
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
            self.note(account, timed.seconds)
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


@brief_value_class
class Behalf:
    account: str
    queues: AccountQueues
    is_in_turn: bool = False


BEHALF: ContextVar[Behalf | None] = ContextVar("behalf", default=None)


def note_work(seconds: float) -> None:
    """Counts seconds of the processor for the account on whose behalf the caller runs, if there is one."""
    if (behalf := BEHALF.get()) is not None:
        behalf.queues.note(behalf.account, seconds)


def counted(act: Callable[[], T]) -> Callable[[], T]:
    """Returns `act` for another thread, which counts for whoever this task works for."""
    if BEHALF.get() is None:
        return act
    context = copy_context()

    def run() -> T:
        began = time.thread_time()
        try:
            return act()
        finally:
            note_work(time.thread_time() - began)

    return lambda: context.run(run)


@dataclass(slots=True)
class HostWork:
    """Paces the host's work for accounts that give way. All others do theirs at once."""

    longest_rest_s: float = 1.0
    _giving: dict[str, _Pace] = field(default_factory=dict)

    def give_way(self, accounts: Collection[str]) -> None:
        """Says which accounts give way from now on."""
        self._giving = {one: self._giving.get(one) or _Pace() for one in accounts}

    @property
    def giving(self) -> Collection[str]:
        return self._giving.keys()

    def turn(self) -> AbstractAsyncContextManager[None]:
        """Waits for the turn of whoever this task works for: the next piece of work of an account that gives
        way begins twice as long after this one as such pieces take. By the clock and not by a lock: one
        may wait for another of the same account. What it begins itself is part of it.
        """
        behalf = BEHALF.get()
        pace = None if behalf is None or behalf.is_in_turn else self._giving.get(behalf.account)
        return nullcontext() if behalf is None or pace is None else self._paced(behalf, pace)

    @asynccontextmanager
    async def _paced(self, behalf: Behalf, pace: _Pace) -> AsyncIterator[None]:
        now = time.monotonic()
        begins = max(now, pace.next_at)
        pace.next_at = begins + min(2 * pace.takes_s, self.longest_rest_s)
        await asyncio.sleep(begins - now)
        token = BEHALF.set(replace(behalf, is_in_turn=True))
        began = time.monotonic()
        try:
            yield
        finally:
            BEHALF.reset(token)
            pace.takes_s = (pace.takes_s + time.monotonic() - began) / 2


@dataclass(slots=True)
class _Pace:
    next_at: float = 0.0
    # On average, lately.
    takes_s: float = 0.05


def _timed(act: Callable[[], object]) -> _Timed:
    """Returns the result and the processor time used. Waiting for the work of others is not charged."""
    began = time.thread_time()
    try:
        value, error = act(), None
    except Exception as raised:
        value, error = None, raised
    return _Timed(value, error, time.thread_time() - began)


@dataclass(slots=True)
class Turns:
    """Decides when an account may use the event loop. All times are those of time.monotonic()."""

    bounds: TurnBounds = field(default_factory=TurnBounds)
    # The account that asked last, and when one asked that is another.
    _newest: str = ""
    _newest_at: float = float("-inf")
    _other_at: float = float("-inf")
    # Until when the time that an account has had is spread out, at its share.
    _spread_until: dict[str, float] = field(default_factory=dict)
    # When each account asked last; how many were there when they were counted last.
    _asked_at: dict[str, float] = field(default_factory=dict)
    _count: int = 0
    _counted_at: float = float("-inf")
    # What all together, and each account, have had lately.
    _all: _Recent = field(default_factory=_Recent)
    _recent: dict[str, _Recent] = field(default_factory=dict)

    def note(self, account: str, now: float) -> None:
        """Notes that the account has asked for something."""
        if account != self._newest:
            self._newest, self._other_at = account, self._newest_at
        self._newest_at = self._asked_at[account] = now
        if len(self._asked_at) > _MOST_REMEMBERED:
            self._count_again(now)

    def is_alone(self, account: str, now: float) -> bool:
        other_at = self._other_at if account == self._newest else self._newest_at
        return now - other_at > self.bounds.there_s

    def spend(self, account: str, seconds: float, now: float) -> float:
        """Charges so much loop time to the account. Returns how long it should wait before it gets more."""
        if seconds:
            self._all.add(seconds, now, self.bounds.there_s)
            self._recent.setdefault(account, _Recent()).add(seconds, now, self.bounds.there_s)
        until = self._spread_until
        if len(until) > _MOST_REMEMBERED:
            self._spread_until = until = {one: at for one, at in until.items() if at > now}
        if self.is_alone(account, now):
            until.pop(account, None)
            return 0.0
        share = self._share(account, now)
        until[account] = spread = max(now, until.get(account, now)) + seconds / share
        return min(max(0.0, spread - now - self.bounds.stretch_s / share), self.bounds.longest_wait_s)

    def _share(self, account: str, now: float) -> float:
        """Returns one part for each who is there, or more if those others leave the loop idle. Otherwise a
        crowd that asks for next to nothing, each once a second, would keep from others what it does not use.
        """
        if now - self._counted_at > _RECOUNT_S:
            self._count_again(now)
        fades_s, mine = self.bounds.there_s, self._recent.get(account)
        others = self._all.left(now, fades_s) - (0.0 if mine is None else mine.left(now, fades_s))
        part = min(self.bounds.share, 1 / max(1, self._count))
        return max(part, self.bounds.share - max(0.0, others) / fades_s)

    def _count_again(self, now: float) -> None:
        since = now - self.bounds.there_s
        self._asked_at = {account: at for account, at in self._asked_at.items() if at >= since}
        self._count, self._counted_at = len(self._asked_at), now
        if len(self._recent) > _MOST_REMEMBERED:
            fades_s = self.bounds.there_s
            kept = {name: one for name, one in self._recent.items() if one.left(now, fades_s) > _FADED_S}
            self._recent = kept

    async def admit(self, account: str) -> None:
        """Lets a request of this account begin: at once, unless the account has had more than its share."""
        now = time.monotonic()
        self.note(account, now)
        while wait_s := self.spend(account, 0.0, now):
            await asyncio.sleep(wait_s)
            now = time.monotonic()
        # Before it has begun: those who waited beside it wake in the same moment, and must see that it goes.
        self.spend(account, _BEGINNING_S, now)

    async def take(self, account: str, seconds: float, sent: int = 0) -> None:
        """Leaves the loop to others after a slice that took so long and sends so many bytes. The slice counts
        twice, here and as a step of its request, since nobody waits for it as for an answer.
        """
        await asyncio.sleep(self.spend(account, seconds + sent / _BYTES_A_SECOND, time.monotonic()))


class Metered(Generic[T]):
    """Wraps `work` as an awaitable and reports the loop seconds it takes to `spent`, in parts while it
    runs.
    """

    __slots__ = ("_spent", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], spent: Callable[[float], object]) -> None:
        self._work = work
        self._spent = spent

    def __await__(self) -> Generator[Any, Any, T]:
        steps = self._work.__await__()
        seconds, value, error = 0.0, None, None
        try:
            while True:
                began = time.monotonic()
                try:
                    waited = steps.send(value) if error is None else steps.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                finally:
                    seconds += time.monotonic() - began
                if seconds > _COUNT_EVERY_S:
                    self._spent(seconds)
                    seconds = 0.0
                value = error = None
                try:
                    value = yield waited
                except BaseException as raised:
                    error = raised
        finally:
            self._spent(seconds)


def come_first() -> None:
    """Raises the priority of the calling thread, which runs the loop. Ignores what the host does not
    allow.
    """
    sys.setswitchinterval(SWITCH_S)
    _take(FIRST)


def come_last() -> None:
    """Lowers the priority of a process that works through what a tenant sent."""
    _take(LAST)


def _take(niceness: int) -> None:
    # Of this thread alone: Linux keeps it for each, and what other threads start is ordinary.
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if os.getsid(0) != os.getpid():
        return  # started by hand from a shell, whose session is not ours to change
    # Where sessions are scheduled as groups, `nice` counts within a session only; this is the group's own.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(niceness))
