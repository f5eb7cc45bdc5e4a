"""What every connection of the gateway shares, the limits that apply to all of them, and what one connection
knows after its login.

`Crowd` counts connections and channels, `RateLimit` limits how fast SFTP may ask about files; both only
count.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandboxer.access.connections import count_less
from sandboxer.access.ssh import SshKey
from sandboxer.accounts.limits import quotas
from sandboxer.backends.guest import Guest
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Lease
from sandboxer.kernel.values import value_class
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.wire.operations.declaration import RateClass
from sandboxer.wiring import Platform
from sandboxer.work.lines import Line, Lines

if TYPE_CHECKING:
    from sandboxer.edges.ssh.gateway import Door


from collections import Counter, deque

from sandboxer.sandboxes.use_cases.access import open_line


@value_class
class Bounds:
    # Connections that have not logged in yet.
    unknown: int = 100
    unknown_per_address: int = 20
    per_address: int = 100
    per_sandbox: int = 32
    per_account: int = 128
    # How long a login may take.
    login_s: float = 20
    # How many keys one connection may offer; every refusal counts for its address too.
    offers: int = 8
    refusals_per_minute: int = 120
    # Shells, commands, transfers and forwards of one connection at once.
    channels: int = 64
    # Each channel may hold a window of unread bytes.
    channels_per_account: int = 256
    window_bytes: int = 1024 * 1024
    # Bytes of answers that may wait for a client that does not read.
    unread_bytes: int = 16 * 1024 * 1024


@dataclass(slots=True)
class Crowd:
    bounds: Bounds = field(default_factory=Bounds)
    unknown: Counter[str] = field(default_factory=Counter)
    addresses: Counter[str] = field(default_factory=Counter)
    sandboxes: Counter[str] = field(default_factory=Counter)
    accounts: Counter[str] = field(default_factory=Counter)
    channels: Counter[str] = field(default_factory=Counter)
    refusals: dict[str, deque[float]] = field(default_factory=dict)

    def may_knock(self, address: str, now: float) -> bool:
        bounds = self.bounds
        return (
            self.unknown.total() < bounds.unknown
            and self.unknown[address] < bounds.unknown_per_address
            and self.addresses[address] < bounds.per_address
            and self._recent(address, now) < bounds.refusals_per_minute
        )

    def knocked(self, address: str) -> None:
        self.unknown[address] += 1
        self.addresses[address] += 1

    def refused(self, address: str, now: float) -> None:
        if self._recent(address, now) < self.bounds.refusals_per_minute:
            self.refusals.setdefault(address, deque()).append(now)

    def may_enter(self, sandbox_id: str, account: str) -> bool:
        return (
            self.sandboxes[sandbox_id] < self.bounds.per_sandbox
            and self.accounts[account] < self.bounds.per_account
        )

    def entered(self, address: str, sandbox_id: str, account: str) -> None:
        count_less(self.unknown, address)
        self.sandboxes[sandbox_id] += 1
        self.accounts[account] += 1

    def left(self, address: str, inside: tuple[str, str] | None) -> None:
        """Counts the end of a connection. `inside` is its sandbox and account; None if it never logged in."""
        count_less(self.addresses, address)
        if inside is None:
            count_less(self.unknown, address)
        else:
            count_less(self.sandboxes, inside[0])
            count_less(self.accounts, inside[1])

    def may_open(self, account: str, has_open: int) -> bool:
        """Tells whether a connection with this many open channels may open another."""
        return has_open < self.bounds.channels and self.channels[account] < self.bounds.channels_per_account

    def opened(self, account: str) -> None:
        self.channels[account] += 1

    def closed(self, account: str) -> None:
        count_less(self.channels, account)

    def sweep(self, now: float) -> None:
        for address in list(self.refusals):
            if self._recent(address, now) == 0:
                del self.refusals[address]

    def _recent(self, address: str, now: float) -> int:
        past = self.refusals.get(address)
        while past and past[0] < now - 60:
            past.popleft()
        return len(past or ())


STEPS_PER_S = 500.0
BURST = 2000.0
# The cost of starting a program inside, for what the supervisor cannot do.
PROGRAM = 4.0


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


@dataclass(slots=True)
class RateLimit:
    per_second: float = STEPS_PER_S
    burst: float = BURST
    _buckets: dict[str, _Bucket] = field(default_factory=dict)

    def wait_for(self, account: str, cost: float, now: float) -> float:
        """Spends the cost and returns how many seconds to wait before acting."""
        bucket = self._buckets.setdefault(account, _Bucket(self.burst, now))
        bucket.left = min(self.burst, bucket.left + (now - bucket.at) * self.per_second) - cost
        bucket.at = now
        return max(0.0, -bucket.left / self.per_second)

    def sweep(self, now: float) -> None:
        """Forget whom nothing holds up any more."""
        for account, bucket in list(self._buckets.items()):
            if bucket.left + (now - bucket.at) * self.per_second >= self.burst:
                del self._buckets[account]


# The folder where `ssh`, `scp` and `sftp` begin.
HOME = "/root"


@dataclass(slots=True)
class SshDependencies:
    platform: Platform
    crowd: Crowd = field(default_factory=Crowd)
    doors: set[Door] = field(default_factory=set)
    rate_limit: RateLimit = field(default_factory=RateLimit)

    def lines(self) -> Lines:
        return Lines(self.platform.sandboxes)


@dataclass(slots=True)
class Login:
    """A connection that has logged in: with whose key, and to which sandbox."""

    dependencies: SshDependencies
    sandbox_id: str
    key: SshKey
    # The account at the top of the delegation, whose limits apply.
    root: str
    # The address that its requests are counted for.
    address: str
    # Raises the error that would refuse it now.
    standing: Callable[[], Awaitable[None]]
    # Whether the connection has ended.
    is_over: Callable[[], bool]
    # Requests that were counted in advance: the first one is counted with the connection.
    prepaid: int = 0

    @property
    def caller(self) -> Caller:
        return self.key.caller()

    async def count(self) -> None:
        """Counts a shell, command, transfer or forward as a request like any other. Raises
        TooManyRequests.
        """
        if self.prepaid:
            self.prepaid -= 1
            return
        platform = self.dependencies.platform
        authority = await platform.authorities.of(self.caller)
        sender = authority.sender(self.caller, now=platform.clock.now())
        wanted = quotas(RateClass.API, address=self.address, caller=sender, policy=platform.limits)
        platform.limiter.admit(wanted, now=time.monotonic())

    def lease(self) -> Lease:
        """Returns a lease for what a transfer holds, as over HTTP."""
        return self.dependencies.platform.budget.lease(self.root)

    async def wait_for_rate(self, cost: float) -> None:
        """Delays a step of a transfer that is too fast."""
        if (wait := self.dependencies.rate_limit.wait_for(self.root, cost, time.monotonic())) > 0:
            await asyncio.sleep(wait)

    def line(self, activity: ActivityKind) -> AbstractAsyncContextManager[Line]:
        return self.dependencies.lines().open(self.sandbox_id, self.caller, activity)

    def guest(self, activity: ActivityKind) -> AbstractAsyncContextManager[Guest]:
        return open_line(
            self.dependencies.platform.sandboxes, self.sandbox_id, self.caller, activity=activity
        )
