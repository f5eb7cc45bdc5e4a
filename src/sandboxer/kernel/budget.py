"""Limits what tenants can make this host hold and do: bytes, slots and seconds of work, each and together.

Whatever is held on a tenant's behalf beyond 64 KiB (a body, kept output, an answer, a slot) is taken from one
`Budget`, for the account at the root of the caller's ancestry and for the host, and given back when the block
that took it ends. Sums are kept behind `Counters`: several processes that serve one host would share them.
Work on what is large is done in queues, in seconds that the same account has; what of
it must be done on the event loop, in turns (both in `kernel/fairness.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from sandboxer.kernel.errors import NoCapacity, OverBudget, TooLarge
from sandboxer.kernel.fairness import BEHALF, AccountQueues, Behalf, Metered, Turns
from sandboxer.kernel.values import value_class

# What nobody counts: it is smaller than what a connection costs anyway.
SMALL = 64 * 1024
# Quotes, commas, colons and opening brackets: about five for a member of an object.
MAX_MARKS = 32_768
_SEPARATORS = (b",", b":", b"[", b"{")
_HOST = "host"
T = TypeVar("T")
_LOOK_S = 0.05


@value_class
class BudgetBounds:
    host_bytes: int = 1024 * 1024 * 1024
    account_bytes: int = 256 * 1024 * 1024
    # How long somebody waits for others to give back.
    wait_s: float = 5.0


class Counters(Protocol):
    """Keeps named sums. Each call is atomic."""

    def take(self, name: str, amount: int, most: int) -> bool:
        """Add to the sum, unless it would pass `most`."""
        ...

    def give_back(self, name: str, amount: int) -> None: ...

    def held(self, name: str) -> int: ...


class LocalCounters:
    """Keeps the sums in the memory of one process with one event loop."""

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}

    def take(self, name: str, amount: int, most: int) -> bool:
        if (held := self._sums.get(name, 0) + amount) > most:
            return False
        self._sums[name] = held
        return True

    def give_back(self, name: str, amount: int) -> None:
        if (left := self._sums.get(name, 0) - amount) > 0:
            self._sums[name] = left
        else:
            self._sums.pop(name, None)

    def held(self, name: str) -> int:
        return self._sums.get(name, 0)


class Budget:
    def __init__(
        self,
        bounds: BudgetBounds | None = None,
        counters: Counters | None = None,
        queues: AccountQueues | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.bounds = bounds or BudgetBounds()
        self._counters = counters or LocalCounters()
        self.queues = queues or AccountQueues()
        self.turns = turns or Turns()

    def lease(self, account: str) -> Lease:
        """Returns a lease that holds nothing yet. Use it as a context manager and let it grow."""
        return Lease(self, account)

    def held(self, account: str | None = None) -> int:
        return self._counters.held(_HOST if account is None else f"account:{account}")

    @contextmanager
    def slot(self, kind: str, account: str, *, per_account: int, in_all: int) -> Iterator[None]:
        """Holds one of a few slots for work of this kind while inside. Raises OverBudget or NoCapacity
        instead of waiting.
        """
        mine, all_ = f"slot:{kind}:{account}", f"slot:{kind}"
        if not self._counters.take(mine, 1, per_account):
            raise OverBudget(
                why=f"{per_account} of your {kind} are under way", limit=per_account, retry_after_s=5
            )
        try:
            if not self._counters.take(all_, 1, in_all):
                raise NoCapacity(
                    resource=f"place for {kind}", why=f"{in_all} are under way", hint="Try again in a while."
                )
            try:
                yield
            finally:
                self._counters.give_back(all_, 1)
        finally:
            self._counters.give_back(mine, 1)

    def try_take(self, account: str, amount: int) -> str | None:
        """Reserves bytes for an account. Returns None on success, otherwise the account or host whose
        limit was reached.
        """
        name = f"account:{account}"
        if not self._counters.take(name, amount, self.bounds.account_bytes):
            return account
        if not self._counters.take(_HOST, amount, self.bounds.host_bytes):
            self._counters.give_back(name, amount)
            return _HOST
        return None

    def give_back(self, account: str, amount: int) -> None:
        self._counters.give_back(f"account:{account}", amount)
        self._counters.give_back(_HOST, amount)

    def refusal(self, bound_by: str, amount: int) -> OverBudget | NoCapacity:
        if bound_by == _HOST:
            return NoCapacity(
                resource="memory for what callers send and ask for",
                why=f"{self.bounds.host_bytes >> 20} MB are in use by all together",
                hint="Try again in a while, ask for less, or use a streaming route.",
            )
        return OverBudget(
            why=f"{amount} bytes more would pass the {self.bounds.account_bytes >> 20} MB that your requests"
            " under way may hold together",
            limit=self.bounds.account_bytes,
            retry_after_s=5,
        )


class Lease:
    """Counts the bytes that one request or piece of work holds. All of them are given back when it ends."""

    __slots__ = ("_account", "_budget", "_is_over", "_turn", "held", "wanted")

    def __init__(self, budget: Budget, account: str) -> None:
        self._budget = budget
        self._account = account
        # For whom its time on the loop counts: the account's, or of a stranger the address.
        self._turn = account
        self._is_over = False
        # What was asked for, and what was taken for it: the first 64 KiB are nobody's.
        self.wanted = 0
        self.held = 0

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def account(self) -> str:
        return self._account

    async def is_for(self, account: str) -> None:
        """Charges the lease to this account from now on, and waits for its turn on the event loop.
        Nothing may be held yet.
        """
        self._account = self._turn = account
        # What the host does for the rest of this request counts for the account, wherever it is done.
        BEHALF.set(Behalf(account, self._budget.queues))
        await self._budget.turns.admit(account)

    async def is_from(self, address: str) -> None:
        """Charges an anonymous request to its address, and waits for the turn on the event loop that all
        from there share.
        """
        self._turn = f"address:{address}"
        await self._budget.turns.admit(self._turn)

    async def metered(self, work: Coroutine[Any, Any, T]) -> T:
        """Awaits `work` and charges the loop time it takes to the account."""
        return await Metered(work, self._spent_on_loop)

    def _spent_on_loop(self, seconds: float) -> None:
        self._budget.turns.spend(self._turn, seconds, time.monotonic())
        if self._turn == self._account:
            self._budget.queues.note(self._account, seconds)

    async def grow(self, amount: int) -> None:
        """Holds so many bytes more. Waits a moment for others to give some back. Raises OverBudget (429),
        NoCapacity (503).
        """
        if (bound_by := self._take(amount)) is None:
            return
        ends = time.monotonic() + self._budget.bounds.wait_s
        while bound_by is not None:
            if time.monotonic() > ends:
                raise self._budget.refusal(bound_by, amount)
            await asyncio.sleep(_LOOK_S)
            bound_by = self._take(amount)

    def grow_at_once(self, amount: int) -> None:
        """Does the same as `grow` without waiting."""
        if (bound_by := self._take(amount)) is not None:
            raise self._budget.refusal(bound_by, amount)

    async def work(self, size: int, act: Callable[[], T]) -> T:
        """Returns the result of `act`, called at once if it handles little data and in the account's
        queue otherwise. Raises OverBudget.
        """
        return act() if size <= SMALL else await self._budget.queues.run(self.account, act)

    async def in_turn(self, took_s: float, sent: int = 0) -> None:
        """Lets others have the loop after a slice that took so long and sends so many bytes."""
        await self._budget.turns.take(self._turn, took_s, sent)

    def shrink(self, amount: int) -> None:
        self.wanted = max(0, self.wanted - amount)
        if (beyond := self.held - self._due(self.wanted)) > 0:
            self.held -= beyond
            self._budget.give_back(self.account, beyond)

    def close(self) -> None:
        self._is_over = True
        self.wanted = 0
        held, self.held = self.held, 0
        if held:
            self._budget.give_back(self.account, held)

    def _take(self, amount: int) -> str | None:
        if self._is_over:
            raise RuntimeError("this lease has ended")
        if (missing := self._due(self.wanted + amount) - self.held) > 0:
            if (bound_by := self._budget.try_take(self.account, missing)) is not None:
                return bound_by
            self.held += missing
        self.wanted += amount
        return None

    @staticmethod
    def _due(wanted: int) -> int:
        """Rounds up to steps, so that a stream of small pieces does not update the sums for each piece."""
        return 0 if wanted <= SMALL else -(-wanted // SMALL) * SMALL


class Shape:
    """Counts how much structure a large text has, before anybody parses it as JSON; it is fed piece by piece.
    Whether it is valid JSON is decided by its parser.

    Parsing 12 MiB of text takes milliseconds; 12 MiB of `0,0,0,…` takes a second in which nobody else is
    served, even in a thread, because parsers hold the interpreter's lock. Nothing that is sent to us needs
    more than a few thousand values.
    """

    __slots__ = ("_is_inside", "_most", "_rest", "marks")

    def __init__(self, most: int = MAX_MARKS) -> None:
        self._most = most
        self.marks = 0
        # Whether the end of the last piece was inside a string, and after a backslash.
        self._is_inside = False
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """Raises TooLarge."""
        # Each step handles the whole piece in C: escapes are removed, and quotes separate inside from
        # outside.
        plain = (self._rest + piece).replace(b"\\\\", b"").replace(b'\\"', b"")
        self._rest = b"\\" if plain.endswith(b"\\") else b""
        parts = plain.split(b'"')
        outside = b"".join(parts[1 if self._is_inside else 0 :: 2])
        self._is_inside ^= len(parts) % 2 == 0
        self.marks += len(parts) - 1 + sum(outside.count(one) for one in _SEPARATORS)
        if self.marks > self._most:
            raise TooLarge(what="The number of values in the body", limit=f"about {self._most // 5}")

    @classmethod
    def check(cls, data: bytes, most: int = MAX_MARKS) -> None:
        """Counts a text that is there already; one that has too much is refused after a piece of it. Raises
        TooLarge.
        """
        # Most have few marks in all, in strings or not, and counting those costs next to nothing.
        if len(data) > SMALL and sum(map(data.count, (b'"', *_SEPARATORS))) > most:
            shape = cls(most)
            for start in range(0, len(data), SMALL):
                shape.feed(data[start : start + SMALL])
