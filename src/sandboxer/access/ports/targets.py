"""Targets are where requests for ports go. The protocol `Targets` separates the reverse proxy from whoever
gives names to ports.

The proxy knows sandboxes and ports. Names (a service's, a customer's own domain) are kept elsewhere, so it
asks for them here.

The `Waker` wakes a sleeping sandbox when a request comes, once for however many requests, if the target
allows it.

Passages carry the traffic of each sandbox's ports: open requests count as work, bytes are counted, and
connections are dialled. Requests come and go a thousand times a second. The sandbox counts as working from
the first of them until none came for a moment, so that neither its record nor its idle time flickers.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Protocol
from weakref import WeakValueDictionary

from sandboxer.backends.guest import Connection
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import (
    BackendLost,
    GuestRefused,
    IllegalTransition,
    NotFound,
    SandboxerError,
    Unavailable,
)
from sandboxer.kernel.values import brief_value_class
from sandboxer.sandboxes.activity import Activity
from sandboxer.sandboxes.charging import is_frozen
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import FINAL, State
from sandboxer.sandboxes.records import AtEnd, Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.use_cases import lifetime, pause
from sandboxer.sandboxes.use_cases.access import ActivityKind, open_line

# Requests that come right after a failed wake get the same error without another try.
FAILED_FOR_S = 1.0
_MOST_FAILED = 1000
# For how long one that sleeps since its time was over lives on when it is used.
WOKEN_FOR = timedelta(minutes=5)
_AWAKE = frozenset({State.READY, State.ACTIVE, State.GRACE})
GONE = frozenset({State.EXPIRED, State.DESTROYING, State.DESTROYED})
ASLEEP = frozenset({State.STOPPED, State.REAPED, State.FAILED})


@brief_value_class
class Target:
    """One port of one sandbox, and how a request for it is treated."""

    sandbox_id: str
    port: int
    account: str
    is_public: bool
    wakes: bool
    """Thaw or resume a frozen or stopped sandbox when a request comes."""
    hold_s: float = 0
    """How long a request may wait while nothing listens (at a start, during a redeploy)."""
    takes_traffic: bool = False
    """Every port of its sandbox is open, to everyone or to who holds a token of its traffic."""
    is_over: bool = False
    """It was open so, and its sandbox does not run any more."""
    host: str | None = None
    """What the program inside sees as the host; None: what the visitor said."""


class Targets(Protocol):
    """Knows ports by name."""

    async def by_domain(self, host: str) -> Target | None:
        """Returns what a host name without its port stands for: a customer's own domain, or
        `{service}.{domain}`.
        """
        ...

    async def by_service(self, service_id: str) -> Target | None:
        """Returns what a service's id stands for."""
        ...

    def present_port(self, sandbox_id: str, port: int) -> int:
        """Returns where requests for this port go now: a program on $PORT has another one after a
        redeploy.
        """
        ...

    def proof_of(self, host: str) -> str | None:
        """Returns the token of a customer's own domain that leads here, for checking its proof again."""
        ...

    async def woken(self, target: Target) -> None:
        """Called after a request has woken this target's sandbox, to start again what has to run in it."""
        ...

    def touched(self, sandbox_id: str) -> None:
        """Called when a request for this sandbox went through. Every request calls it, so it must cost
        nothing.
        """
        ...


# Counts one wake. Raises TooManyRequests if this visitor or all together have used up their share.
MayWake = Callable[[], None]
# Starts what has to run in a sandbox whose processes begin anew.
Begin = Callable[[Sandbox], Awaitable[None]]


class Waker:
    def __init__(self, sandboxes: SandboxDependencies, targets: Callable[[], Targets]) -> None:
        self._sandboxes = sandboxes
        self._targets = targets
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._failed: dict[str, tuple[float, SandboxerError]] = {}
        # Set by the edge whose sandboxes sleep until they are used.
        self.begin: Begin | None = None

    async def awake(self, target: Target, may_wake: MayWake | None = None) -> bool:
        """Returns when the sandbox answers; True if it had been asleep.

        Raises NotFound, Unavailable, TooManyRequests (from `may_wake`), or the reason why it cannot wake.
        """
        if _is_awake(await self._find(target)):
            return False
        async with self.turn(target.sandbox_id):
            sandbox = await self._find(target)
            if _is_awake(sandbox):
                return True
            until, error = self._failed.get(target.sandbox_id, (0.0, None))
            if error is not None and time.monotonic() < until:
                # Without its traceback, which would keep all requests before it in memory.
                raise error.with_traceback(None)
            if may_wake is not None and target.wakes:
                may_wake()
            try:
                await self._wake(sandbox, target)
            except SandboxerError as error:
                now = time.monotonic()
                if len(self._failed) >= _MOST_FAILED:
                    self._failed = {name: one for name, one in self._failed.items() if one[0] > now}
                self._failed[target.sandbox_id] = (now + FAILED_FOR_S, error)
                raise
            self._failed.pop(target.sandbox_id, None)
            await self._targets().woken(target)
            return True

    def turn(self, sandbox_id: str) -> asyncio.Lock:
        """Returns what whoever wakes this sandbox holds, so that what is to run in it is started once."""
        return self._locks.setdefault(sandbox_id, asyncio.Lock())

    async def _wake(self, sandbox: Sandbox, target: Target) -> None:
        caller = Caller(public_key="system:proxy", account=target.account)
        if sandbox.state not in (State.FROZEN, State.STOPPED):
            raise _asleep(sandbox, "which no request can change")
        if not target.wakes:
            raise _asleep(sandbox, "and this address does not wake it")
        if sandbox.state is State.FROZEN:
            await pause.thaw(self._sandboxes, sandbox.id, caller)
            return
        sleeps = sandbox.at_end is AtEnd.SLEEP
        if sleeps:
            await lifetime.set_left(self._sandboxes, sandbox.id, WOKEN_FOR, caller, never_less=True)
        resumed = await pause.resume(self._sandboxes, sandbox.id, caller)
        # What was kept of its memory goes on, and needs no beginning.
        if sleeps and self.begin is not None and not sandbox.terms.memory_mb:
            await self.begin(resumed)

    async def _find(self, target: Target) -> Sandbox:
        sandbox = await self._sandboxes.repository.find(target.sandbox_id)
        if sandbox is None or sandbox.state in GONE or sandbox.account != target.account:
            raise NotFound(what="sandbox", id=target.sandbox_id)
        return sandbox


def _is_awake(sandbox: Sandbox) -> bool:
    return sandbox.state in _AWAKE and not is_frozen(sandbox)


def _asleep(sandbox: Sandbox, why: str) -> Unavailable:
    return Unavailable(
        why=f"the sandbox is {sandbox.state.value}, {why}",
        reason="asleep",
        state=sandbox.state.value,
        hint="Its owner can thaw, resume or pay for it; then the same address works again.",
    )


# For how long a sandbox counts as working after its last request.
LINGER_S = 1.0
# How often a port is tried on which nothing listens yet.
# How long a request that woke a sandbox waits there for something that listens.
AFTER_WAKING_S = 10.0
TRY_EVERY_S = 0.05


Again = Callable[[], Awaitable[Target | None]]


@brief_value_class
class Traffic:
    """Bytes since this server started, into the sandbox and out of it, including heads."""

    ingress: int
    egress: int
    requests: int


class Passage:
    """The present traffic of one sandbox's ports."""

    __slots__ = (
        "_activity",
        "_is_stirred",
        "_timer",
        "_working",
        "egress",
        "in_flight",
        "ingress",
        "requests",
        "sandbox_id",
    )

    def __init__(self, sandbox_id: str, activity: Activity) -> None:
        self.sandbox_id = sandbox_id
        self._activity = activity
        self._working: AbstractContextManager[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_stirred = False
        self.in_flight = self.ingress = self.egress = self.requests = 0

    def enter(self) -> None:
        """Counts the beginning of a request."""
        self.in_flight += 1
        self.requests += 1
        self._is_stirred = True
        if self._working is None:
            self._working = self._activity.working(self.sandbox_id)
            self._working.__enter__()

    def leave(self) -> None:
        self.in_flight -= 1
        if not self.in_flight and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._look)

    def _look(self) -> None:
        self._timer = None
        if self._is_stirred:
            self._is_stirred = False
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._look)
        elif not self.in_flight:
            self.close()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._working is not None:
            working, self._working = self._working, None
            working.__exit__(None, None, None)


class Passages:
    def __init__(self, sandboxes: SandboxDependencies, waker: Waker) -> None:
        self._sandboxes = sandboxes
        self._waker = waker
        self._passages: dict[str, Passage] = {}
        self._leavers: list[Callable[[str], None]] = []
        sandboxes.repository.on_change(self._changed)

    def of(self, sandbox_id: str) -> Passage:
        known = self._passages.get(sandbox_id)
        if known is None:
            known = self._passages[sandbox_id] = Passage(sandbox_id, self._sandboxes.activity)
        return known

    def traffic(self, sandbox_id: str) -> Traffic:
        passage = self._passages.get(sandbox_id)
        if passage is None:
            return Traffic(0, 0, 0)
        return Traffic(passage.ingress, passage.egress, passage.requests)

    def on_leave(self, leaver: Callable[[str], None]) -> None:
        """Registers a callback for the id of a sandbox that no longer answers, so that connections to it can
        be dropped.
        """
        self._leavers.append(leaver)

    async def dial(
        self, target: Target, again: Again | None = None, may_wake: MayWake | None = None
    ) -> tuple[Connection, Target]:
        """Connects to the port. Wakes the sandbox if the target allows it, and keeps trying as long as the
        target says.

        `again` says where to connect if that changes meanwhile (a redeploy); the final target is returned
        too. Raises NotFound, Unavailable (asleep), GuestRefused (nothing listens), InsufficientCredit, and
        TooManyRequests if `may_wake` does.
        """
        loop = asyncio.get_running_loop()
        deadline: float | None = None
        while True:
            was_woken = await self._waker.awake(target, may_wake)
            if deadline is None or was_woken:
                # Who was just woken has had no time to listen yet.
                deadline = loop.time() + max(target.hold_s, AFTER_WAKING_S if was_woken else 0)
            try:
                return await self._connect(target), target
            except (GuestRefused, IllegalTransition, BackendLost):
                # It was put to sleep again meanwhile, or nothing listens yet.
                if loop.time() >= deadline:
                    raise
            await asyncio.sleep(TRY_EVERY_S)
            renewed = await again() if again is not None else None
            if renewed is not None and _is_like(renewed, target):
                target = renewed

    async def _connect(self, target: Target) -> Connection:
        caller = Caller(public_key="system:proxy", account=target.account)
        async with open_line(self._sandboxes, target.sandbox_id, caller, activity=ActivityKind.PORT) as guest:
            return await guest.connect(target.port)

    def close(self) -> None:
        for passage in self._passages.values():
            passage.close()

    def _changed(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        del steps
        if _is_awake(sandbox):
            return
        for leaver in self._leavers:
            leaver(sandbox.id)
        if sandbox.state in FINAL:
            passage = self._passages.pop(sandbox.id, None)
            if passage is not None:
                passage.close()


def _is_like(one: Target, other: Target) -> bool:
    """Tells whether only the port differs: what was admitted to one sandbox is not admitted to another."""
    return (one.sandbox_id, one.account, one.is_public) == (other.sandbox_id, other.account, other.is_public)
