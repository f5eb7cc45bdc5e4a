"""What every connection of the gateway shares, and what one of them knows once it has said who it is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sandboxer.access.ssh.crowd import Crowd
from sandboxer.access.ssh.keys import SshKey
from sandboxer.backends.guest import Guest
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.access import ActivityKind
from sandboxer.wiring import Platform
from sandboxer.work.lines import Line, Lines

if TYPE_CHECKING:
    from sandboxer.edges.ssh.door import Door

# Where `ssh`, `scp` and `sftp` begin, as everywhere.
HOME = "/root"


@dataclass(slots=True)
class House:
    platform: Platform
    crowd: Crowd = field(default_factory=Crowd)
    doors: set[Door] = field(default_factory=set)

    def lines(self) -> Lines:
        return Lines(self.platform.sandboxes)


@dataclass(frozen=True, slots=True)
class Visit:
    """One connection that was let in: whose, and to which sandbox."""

    house: House
    sandbox_id: str
    key: SshKey
    # Raises what would refuse it now.
    standing: Callable[[], Awaitable[None]]

    @property
    def caller(self) -> Caller:
        return self.key.caller()

    def line(self, activity: ActivityKind) -> AbstractAsyncContextManager[Line]:
        return self.house.lines().open(self.sandbox_id, self.caller, activity)

    def guest(self, activity: ActivityKind) -> AbstractAsyncContextManager[Guest]:
        return self.house.platform.sandboxes.line(self.sandbox_id, self.caller, activity=activity)
