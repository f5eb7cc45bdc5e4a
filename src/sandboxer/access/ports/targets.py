"""Targets are where requests for ports go. The protocol `Targets` separates the reverse proxy from whoever
gives names to ports.

The proxy knows sandboxes and ports. Names (a service's, a customer's own domain) are kept elsewhere, so it
asks for them here.

The `Waker` wakes a sleeping sandbox when a request comes, once for however many requests, if the target
allows it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol
from weakref import WeakValueDictionary

from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import NotFound, SandboxerError, Unavailable
from sandboxer.sandboxes.charges.charging import is_frozen
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import Sandbox
from sandboxer.sandboxes.use_cases.facade import SandboxUseCases

# Requests that come right after a failed wake get the same error without another try.
FAILED_FOR_S = 1.0
_MOST_FAILED = 1000
_AWAKE = frozenset({State.READY, State.ACTIVE, State.GRACE})
_GONE = frozenset({State.EXPIRED, State.DESTROYING, State.DESTROYED})


@dataclass(frozen=True, slots=True)
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


class NoTargets:
    """The targets of a platform where nobody gives names to ports."""

    async def by_domain(self, host: str) -> Target | None:
        del host
        return None

    async def by_service(self, service_id: str) -> Target | None:
        del service_id
        return None

    def present_port(self, sandbox_id: str, port: int) -> int:
        del sandbox_id
        return port

    def proof_of(self, host: str) -> str | None:
        del host
        return None

    async def woken(self, target: Target) -> None:
        del target

    def touched(self, sandbox_id: str) -> None:
        del sandbox_id


class Waker:
    def __init__(self, sandboxes: SandboxUseCases, targets: Callable[[], Targets]) -> None:
        self._sandboxes = sandboxes
        self._targets = targets
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._failed: dict[str, tuple[float, SandboxerError]] = {}

    async def awake(self, target: Target, may_wake: MayWake | None = None) -> bool:
        """Returns when the sandbox answers; True if it had been asleep.

        Raises NotFound, Unavailable, TooManyRequests (from `may_wake`), or the reason why it cannot wake.
        """
        if _is_awake(await self._find(target)):
            return False
        lock = self._locks.get(target.sandbox_id)
        if lock is None:
            lock = self._locks[target.sandbox_id] = asyncio.Lock()
        async with lock:
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

    async def _wake(self, sandbox: Sandbox, target: Target) -> None:
        caller = Caller(public_key="system:proxy", account=target.account)
        if sandbox.state not in (State.FROZEN, State.STOPPED):
            raise _asleep(sandbox, "which no request can change")
        if not target.wakes:
            raise _asleep(sandbox, "and this address does not wake it")
        if sandbox.state is State.FROZEN:
            await self._sandboxes.thaw(sandbox.id, caller)
        else:
            await self._sandboxes.resume(sandbox.id, caller)

    async def _find(self, target: Target) -> Sandbox:
        sandbox = await self._sandboxes.dependencies.repository.find(target.sandbox_id)
        if sandbox is None or sandbox.state in _GONE or sandbox.account != target.account:
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
