"""Passages carry the traffic of each sandbox's ports: open requests count as work, bytes are counted, and
connections are dialled.

Requests come and go a thousand times a second. The sandbox counts as working from the first of them until
none came for a moment, so that neither its record nor its idle time flickers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sandboxer.access.ports.targets import MayWake, Target, Waker
from sandboxer.backends.guest import Connection
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import BackendLost, GuestRefused, IllegalTransition
from sandboxer.sandboxes.activity import Activity
from sandboxer.sandboxes.charges.charging import is_frozen
from sandboxer.sandboxes.lifecycle import FINAL, State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.repository import Step
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.sandboxes.use_cases.facade import SandboxUseCases

# For how long a sandbox counts as working after its last request.
LINGER_S = 1.0
# How often a port is tried on which nothing listens yet.
TRY_EVERY_S = 0.05
_OPEN = frozenset({State.READY, State.ACTIVE, State.GRACE})


Again = Callable[[], Awaitable[Target | None]]


@dataclass(frozen=True, slots=True)
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
    def __init__(self, sandboxes: SandboxUseCases, waker: Waker) -> None:
        self._sandboxes = sandboxes
        self._waker = waker
        self._passages: dict[str, Passage] = {}
        self._leavers: list[Callable[[str], None]] = []
        sandboxes.dependencies.repository.on_change(self._changed)

    def of(self, sandbox_id: str) -> Passage:
        known = self._passages.get(sandbox_id)
        if known is None:
            known = self._passages[sandbox_id] = Passage(sandbox_id, self._sandboxes.dependencies.activity)
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
                deadline = loop.time() + target.hold_s
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
        async with self._sandboxes.line(target.sandbox_id, caller, activity=ActivityKind.PORT) as guest:
            return await guest.connect(target.port)

    def close(self) -> None:
        for passage in self._passages.values():
            passage.close()

    def _changed(self, sandbox: Sandbox, steps: Sequence[Step]) -> None:
        del steps
        if sandbox.state in _OPEN and not is_frozen(sandbox):
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
