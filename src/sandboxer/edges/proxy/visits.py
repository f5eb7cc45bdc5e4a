"""How often visitors may knock in vain at ports, and how often they may wake what sleeps behind them.

A refusal costs a look-up and an id can be guessed; a wake is paid for by whoever owns the sandbox. Both are
counted by the visitor's address; wakes by the sandbox too, so that many addresses together wake it no more.
Programs that only look whether something is there (crawlers, monitors, browsers in search of an icon) wake
nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sandboxer.access.http1.heads import RequestHead
from sandboxer.access.ports.targets import Target
from sandboxer.accounts.limiter import Limiter
from sandboxer.accounts.limits import LimitPolicy, Network, Quota, Sender, client_address, quotas
from sandboxer.edges.proxy.peers import Peer
from sandboxer.kernel.errors import NotFound, Unauthenticated, Unavailable
from sandboxer.wire.operations.terms import RateClass

# When who only looks may look again.
RETRY_LOOK_S = 60
_LOOKS = frozenset({b"HEAD", b"OPTIONS", b"TRACE"})
_LOOKED_FOR = frozenset({b"/robots.txt", b"/favicon.ico"})
_PREFLIGHT = b"access-control-request-method:"


class Visits:
    def __init__(self, limiter: Limiter, policy: LimitPolicy, trusted: Sequence[Network]) -> None:
        self._limiter = limiter
        self._policy = policy
        self._trusted = trusted

    def count(self, head: RequestHead, peer: Peer, sender: Sender | None) -> None:
        """Count a signed request as the API counts its own. Raises TooManyRequests."""
        address = self._address(head, peer)
        wanted = quotas(RateClass.API, address=address, caller=sender, policy=self._policy)
        self._limiter.admit(wanted, now=time.monotonic())

    @contextmanager
    def counting_refusals(self, head: RequestHead, peer: Peer) -> Iterator[None]:
        """Raises TooManyRequests before anything is looked up for an address that was refused too often."""
        refused = Quota(f"refused-address:{self._address(head, peer)}", self._policy.port_refusals)
        if self._limiter.wait_s((refused,), now=time.monotonic()):
            self._limiter.admit((refused,), now=time.monotonic())
        try:
            yield
        except (NotFound, Unauthenticated):
            self._limiter.admit((refused,), now=time.monotonic())
            raise

    def count_wake(self, head: RequestHead, peer: Peer, target: Target, asked: bytes) -> None:
        """`asked`: as the program inside would see it. Raises Unavailable for a stranger who only looks, and
        TooManyRequests when this visitor, or all of them together, woke enough for a minute."""
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
    """Whether a request is for something about the site and not for the site. A browser's question before a
    request from another origin announces that request, and without an answer it would never come."""
    if head.method == b"OPTIONS":
        return not any(line[: len(_PREFLIGHT)].lower() == _PREFLIGHT for line in head.lines)
    return head.method in _LOOKS or asked.partition(b"?")[0] in _LOOKED_FOR
