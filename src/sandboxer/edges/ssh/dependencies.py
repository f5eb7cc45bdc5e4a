"""What every connection of the gateway shares, and what one connection knows after its login."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandboxer.access.ssh.keys import SshKey
from sandboxer.access.ssh.limits import Crowd, RateLimit
from sandboxer.accounts.limits import quotas
from sandboxer.backends.guest import Guest
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Lease
from sandboxer.sandboxes.use_cases.access import ActivityKind
from sandboxer.wire.operations.declaration import RateClass
from sandboxer.wiring import Platform
from sandboxer.work.lines import Line, Lines

if TYPE_CHECKING:
    from sandboxer.edges.ssh.door import Door

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
        wait = self.dependencies.rate_limit.wait_for(self.root, cost, time.monotonic())
        if wait > 0:
            await asyncio.sleep(wait)

    def line(self, activity: ActivityKind) -> AbstractAsyncContextManager[Line]:
        return self.dependencies.lines().open(self.sandbox_id, self.caller, activity)

    def guest(self, activity: ActivityKind) -> AbstractAsyncContextManager[Guest]:
        return self.dependencies.platform.sandboxes.line(self.sandbox_id, self.caller, activity=activity)
