"""What a door decides about a request before it is passed on: which port it is for, and whether it is
allowed.

`VisitorLimits` limit how often visitors may be refused by ports, and wake what sleeps behind them. A refusal
costs a look-up, and an id can be guessed; a wake is paid for by the sandbox's owner. Both are counted by the
visitor's address, wakes also by sandbox, so that many addresses together wake it no more often. Programs that
only check whether something is there (crawlers, monitors, browsers looking for an icon) wake nothing.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Protocol

from sandboxer.access.http1.heads import RequestHead
from sandboxer.access.ports.targets import Again, Passage, Target
from sandboxer.accounts.authority import AuthorityRepository, demand_active
from sandboxer.accounts.limits import Limiter, LimitPolicy, Network, Quota, Sender, client_address, quotas
from sandboxer.edges.proxy.answers import Origin
from sandboxer.identity.authenticate import BodyCheck
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Forbidden, NotFound, Unauthenticated, Unavailable
from sandboxer.kernel.values import brief_value_class
from sandboxer.wire.operations.declaration import RateClass

_SCHEMES = frozenset({b"http", b"https"})
# Sent as Retry-After to programs that only check for something.
RETRY_LOOK_S = 60
_LOOKS = frozenset({b"HEAD", b"OPTIONS", b"TRACE"})
_LOOKED_FOR = frozenset({b"/robots.txt", b"/favicon.ico"})
_PREFLIGHT = b"access-control-request-method:"
# Raises Forbidden unless this account may act now; answers from memory.
Owners = Callable[[str], Awaitable[None]]


@brief_value_class
class Peer:
    address: str
    is_trusted: bool
    # The X-Forwarded lines for a stranger's requests, up to the host.
    lines: bytes

    def scheme(self, head: RequestHead) -> bytes:
        given = head.values(b"x-forwarded-proto")
        return given[-1] if self.is_trusted and given and given[-1] in _SCHEMES else b"http"

    def forwarded(self, head: RequestHead, prefix: bytes) -> bytes:
        """Returns X-Forwarded-* lines: what a stranger claims is replaced, what our own proxy
        says is kept.
        """
        after = b"" if not prefix else b"X-Forwarded-Prefix: " + prefix + b"\r\n"
        if not self.is_trusted:
            return self.lines + head.host + b"\r\n" + after
        chain = b", ".join([*head.values(b"x-forwarded-for"), self.address.encode()])
        given = head.values(b"x-forwarded-host")
        host = given[0] if given else head.host
        said = b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\nX-Forwarded-Host: %b\r\n"
        return said % (chain, self.scheme(head), host) + after


# Raises the error that would refuse the request now.
Standing = Callable[[], Awaitable[None]]


@brief_value_class
class Way:
    """Where a request is passed on to."""

    target: Target
    passage: Passage
    # The first part of the path, which belongs to the platform and is hidden from the program inside.
    prefix: bytes = b""
    # The origin under which it is served; it decides which headers its answers may have.
    origin: Origin = Origin.SHARED


@dataclass(slots=True)
class Admission:
    way: Way
    # The target as the program inside sees it.
    target: bytes
    # Lines that are passed on although the head reader kept them back (cookies of the program).
    lines: list[bytes]
    check: BodyCheck | None = None
    # Checked while it is open: a stream lives no longer than what opened it.
    stands: Standing | None = None
    # Says where to connect if that changes meanwhile.
    again: Again | None = None


class Door(Protocol):
    def glance(self, head: RequestHead) -> Admission | None:
        """Returns a recent decision if it is still valid; never waits."""
        ...

    async def admit(self, head: RequestHead, peer: Peer) -> Admission | bytes:
        """Returns where the request goes, or a whole answer. Raises SandboxerError."""
        ...

    def is_mine(self, data: bytes) -> bool:
        """Tells whether the request that begins like this is for this door."""
        ...


def owners(authorities: AuthorityRepository, clock: Clock) -> Owners:
    async def demand(account: str) -> None:
        if account == OWNER_ACCOUNT:
            return
        authority = await authorities.of(Caller(public_key="system:proxy", account=account))
        try:
            demand_active(authority, now=clock.now())
        except Forbidden:
            # The reason is known only to its owner and the operator.
            raise Forbidden(
                why="what is served here is not served at present",
                reason="owner_not_active",
                hint="Its owner has to ask the operator of this platform.",
            ) from None

    return demand


def peer_of(name: object, trusted: Sequence[Network]) -> Peer:
    """`name` is a transport's peername."""
    address = str(name[0]) if isinstance(name, tuple) and name else "unknown"
    address = address.removeprefix("::ffff:").partition("%")[0]
    lines = b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: " % address.encode()
    return Peer(address, _is_trusted(address, trusted), lines)


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed.version == network.version and parsed in network for network in trusted)


class VisitorLimits:
    def __init__(self, limiter: Limiter, policy: LimitPolicy, trusted: Sequence[Network]) -> None:
        self._limiter = limiter
        self._policy = policy
        self._trusted = trusted

    def count(self, head: RequestHead, peer: Peer, sender: Sender | None) -> None:
        """Counts a signed request as the API counts its own. Raises TooManyRequests."""
        address = self._address(head, peer)
        wanted = quotas(RateClass.API, address=address, caller=sender, policy=self._policy)
        self._limiter.admit(wanted, now=time.monotonic())

    @contextmanager
    def counting_refusals(self, head: RequestHead, peer: Peer) -> Iterator[None]:
        """Counts refusals for the visitor's address. Raises TooManyRequests, before anything is looked up,
        for an address that was refused too often."""
        if self._limiter.wait_s((self._refusals(head, peer),), now=time.monotonic()):
            self.count_refusal(head, peer)
        try:
            yield
        except (NotFound, Unauthenticated):
            self.count_refusal(head, peer)
            raise

    def count_refusal(self, head: RequestHead, peer: Peer) -> None:
        """Counts one refusal for the visitor's address. Raises TooManyRequests."""
        self._limiter.admit((self._refusals(head, peer),), now=time.monotonic())

    def _refusals(self, head: RequestHead, peer: Peer) -> Quota:
        return Quota(f"refused-address:{self._address(head, peer)}", self._policy.port_refusals)

    def count_wake(self, head: RequestHead, peer: Peer, target: Target, asked: bytes) -> None:
        """Counts a wake. `asked` is the target as the program inside would see it. Raises Unavailable for a
        stranger who only checks, and TooManyRequests if this visitor, or all together, woke it often enough
        this minute.
        """
        if target.is_public and only_looks(head, asked):
            raise Unavailable(
                why="the sandbox sleeps, and requests of this kind do not wake it",
                reason="asleep",
                retry_after_s=RETRY_LOOK_S,
                hint="A GET of a page wakes it; so does any request with a preview's token.",
            )
        address = Quota(f"wakes-address:{self._address(head, peer)}", self._policy.wakes_address)
        sandbox = Quota(f"wakes-sandbox:{target.sandbox_id}", self._policy.wakes_sandbox)
        self._limiter.admit((address, sandbox), now=time.monotonic())

    def _address(self, head: RequestHead, peer: Peer) -> str:
        forwarded = [value.decode("latin-1") for value in head.values(b"x-forwarded-for")]
        return client_address(peer.address, forwarded, self._trusted)


def only_looks(head: RequestHead, asked: bytes) -> bool:
    """Tells whether a request is about the site and not for the site. A browser's preflight counts as being
    for the site: without an answer to it, the request itself would never come.
    """
    if head.method == b"OPTIONS":
        return not any(line[: len(_PREFLIGHT)].lower() == _PREFLIGHT for line in head.lines)
    return head.method in _LOOKS or asked.partition(b"?")[0] in _LOOKED_FOR
