"""What a door decides about a request before it is passed on: which port it is for, and that it may."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from sandboxer.access.http1.heads import RequestHead
from sandboxer.access.ports.passages import Again, Passage
from sandboxer.access.ports.targets import Target
from sandboxer.edges.proxy.origins import Origin
from sandboxer.edges.proxy.peers import Peer
from sandboxer.identity.authenticate import BodyCheck

# Raises what would refuse the request now.
Standing = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Way:
    """Where a request goes on to."""

    target: Target
    passage: Passage
    # The first part of the path, which is ours: what is inside never sees it.
    prefix: bytes = b""
    # Under which it is served: decides what its answers may say.
    origin: Origin = Origin.SHARED


@dataclass(slots=True)
class Admission:
    way: Way
    # As the program inside shall see it.
    target: bytes
    # Lines that go on although the head judged them (cookies of others).
    lines: list[bytes]
    check: BodyCheck | None = None
    # Asked while it is open: a stream lives no longer than what opened it.
    stands: Standing | None = None
    # Where to, should that change while it is dialled.
    again: Again | None = None


class Door(Protocol):
    def glance(self, head: RequestHead) -> Admission | None:
        """The answer of a moment ago, if it still holds; never waits."""
        ...

    async def admit(self, head: RequestHead, peer: Peer) -> Admission | bytes:
        """Where it goes, or a whole answer. Raises SandboxerError."""
        ...

    def is_mine(self, data: bytes) -> bool:
        """Does the request that begins so come through this door?"""
        ...
