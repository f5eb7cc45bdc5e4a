"""Rate limits: how many requests a key, an account and an address may send. A `Limiter` counts them.

A request is counted three times: for its key, for the account at the root of its ancestry (cutting children
must not multiply an allowance) and for the address it came from. None of the three may be over its limit.

The `Limiter` counts requests in memory: at most `limit` in *any* minute, and a Retry-After that is exactly
true.

For each name the moments of its last `limit` admitted requests are kept in a ring: a request is admitted if
the oldest of them is a minute ago, and if not, that moment says how long to wait. A refused request costs
nothing, so whoever waits as told is admitted (unless others of its account or address came first).

Names not heard of for a minute are forgotten, and never more than `max_names` are kept: the longest silent
go first. That forgives them at most a minute's worth; it never refuses anyone wrongly.
"""

from __future__ import annotations

import math
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from sandboxer.kernel.errors import InvalidRequest, TooManyRequests
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.money.pricing import TierPrices, entitlement
from sandboxer.wire.operations.declaration import RateClass

# One subscriber's share of IPv6: whoever has one address there has all of them.
IPV6_PREFIX = 64
# What one party is given whole: 65,536 subscribers' shares of IPv6, 256 addresses of IPv4.
IPV6_SITE = 48
IPV4_SITE = 24
# A list longer than this was not written by any proxy of ours.
MAX_HOPS = 32
MAX_CLAIM = 64
WINDOW_S = 60.0
MAX_NAMES = 50_000
# Silent names looked at per request: more than one comes in per request, so the silent never pile up.
_SWEEP = 8
# How many generations an account may raise below it, unless the operator says otherwise; the owner at least.
DEPTH = 8
MAX_DEPTH = 1000
Network: TypeAlias = IPv4Network | IPv6Network


@value_class
class LimitPolicy:
    """The limits, all but the depths per minute."""

    tiers: TierPrices = field(default_factory=TierPrices)
    # Generations below an account, from each tier on (0: without one).
    depths: Mapping[int, int] = field(default_factory=lambda: {0: DEPTH})
    # Accounts with a bucket and no entitlement.
    bucket_only: int = 120
    # From one address: anything, and on auth routes.
    address: int = 1200
    auth_address: int = 10
    # On auth routes by one key.
    auth_key: int = 10
    # At ports: refused connections from one address, and how often requests may wake sleeping sandboxes.
    port_refusals: int = 120
    wakes_address: int = 6
    wakes_sandbox: int = 6

    def __post_init__(self) -> None:
        counts = (one.name for one in fields(self) if one.name not in ("tiers", "depths"))
        if min(getattr(self, name) for name in counts) < 1:
            raise InvalidRequest(field="limits", why="a limit of requests is at least 1 a minute")
        if any(tier < 0 or not 0 <= depth <= MAX_DEPTH for tier, depth in self.depths.items()):
            why = f"tiers from 0 (none), each with a depth from 0 to {MAX_DEPTH}"
            raise InvalidRequest(field="limit_depth", why=why)


LIMITS = LimitPolicy()


@value_class
class Sender:
    """What the rate limits need to know of a caller."""

    public_key: str
    # The account at the top of the caller's ancestry: itself, unless it is delegated.
    root: str
    is_owner: bool = False
    is_root_owner: bool = False
    # A program in a sandbox asks, which may be anybody's.
    is_inside: bool = False
    tier: int | None = None
    root_tier: int | None = None


@brief_value_class
class Quota:
    """At most `limit` in any minute for `name`."""

    name: str
    limit: int


def requests_per_minute(
    tier: int | None, *, is_owner: bool = False, policy: LimitPolicy = LIMITS
) -> int | None:
    """Return the limit of a tier: 7N for tier N, but never less than without a tier.

    None: the owner, no limit.
    """
    if is_owner:
        return None
    if tier is None:
        return policy.bucket_only
    return max(policy.bucket_only, entitlement(tier, policy.tiers).requests_per_minute)


def free_slots(tier: int | None, *, policy: LimitPolicy = LIMITS) -> int:
    """Return how many sandboxes run at rate zero at once: floor((N−1)/4)+1, none without a tier."""
    return 0 if tier is None else entitlement(tier, policy.tiers).slots


def generations(tier: int | None, *, is_owner: bool = False, policy: LimitPolicy = LIMITS) -> int:
    """Return how many generations of delegated keys, those inside sandboxes included, an account may raise
    below it: what the highest step says that its tier reaches.
    """
    if is_owner:
        return max(DEPTH, *policy.depths.values()) if policy.depths else DEPTH
    reached = [step for step in policy.depths if step <= (tier or 0)]
    return policy.depths[max(reached)] if reached else 0


def quotas(
    route: RateClass, *, address: str, caller: Sender | None, policy: LimitPolicy = LIMITS
) -> tuple[Quota, ...]:
    """Return every quota that this request counts against. The owner's key is never limited."""
    if caller is not None and caller.is_owner:
        return ()
    found = [Quota(f"address:{address}", policy.address)]
    if route is RateClass.AUTH:
        found.append(Quota(f"auth-address:{address}", policy.auth_address))
    if caller is None:
        return tuple(found)
    if route is RateClass.AUTH:
        found.append(Quota(f"auth-key:{caller.public_key}", policy.auth_key))
    own = requests_per_minute(caller.tier, policy=policy)
    shared = requests_per_minute(caller.root_tier, is_owner=caller.is_root_owner, policy=policy)
    if own is not None:
        found.append(Quota(f"key:{caller.public_key}", own if shared is None else min(own, shared)))
    if shared is not None:
        found.append(Quota(f"account:{caller.root}", shared))
        if caller.is_inside:
            # Sandboxes together have half of it: whoever made them can always ask for their end.
            found.append(Quota(f"inside:{caller.root}", max(1, shared // 2)))
    return tuple(found)


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """Read the addresses and networks of the proxies that an operator trusts. Raises InvalidRequest."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text.strip()))
        except ValueError as error:
            raise InvalidRequest(field="trusted_proxies", why=str(error)) from None
    return tuple(found)


def client_address(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """Return the address to count for: an IPv4 address, an IPv6 /64, or `local` for a peer without one.

    `forwarded` are the values of X-Forwarded-For in the order received. They are read from the right, each
    believed only because the one after it, beginning with the peer itself, is a trusted proxy. Nothing is
    trusted unless it was configured; what cannot be read is not believed.
    """
    if (hop := _parse(peer or "")) is None:
        return "local"
    # A proxy appends to the right: what a caller wrote itself is on the left.
    claims = [claim for value in forwarded for claim in value.split(",")][-MAX_HOPS:]
    while claims and _is_trusted(hop, trusted):
        claim = claims.pop()
        # No address is longer; and what is remembered must stay small.
        earlier = _parse(claim) if len(claim) <= MAX_CLAIM else None
        if earlier is None:
            break
        hop = earlier
    return _counted(hop)


@lru_cache(maxsize=4096)
def network_around(address: str) -> str:
    """Return the network in which one party may own every address (IPv4 /24, IPv6 /48), for caps per network.

    `address` is what `client_address` gave; what is no address is returned as it is.
    """
    try:
        found = ip_network(address)
    except ValueError:
        return address
    site = IPV4_SITE if isinstance(found, IPv4Network) else IPV6_SITE
    return str(found.supernet(new_prefix=site)) if found.prefixlen > site else address


def is_trusted(peer: str | None, trusted: Sequence[Network]) -> bool:
    """Return whether this peer is a proxy that the operator named."""
    address = _parse(peer or "")
    return address is not None and _is_trusted(address, trusted)


@lru_cache(maxsize=4096)
def _parse(text: str) -> IPv4Address | IPv6Address | None:
    """An address as proxies write it: bare, in brackets, with a port or a zone."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


def _is_trusted(address: IPv4Address | IPv6Address, trusted: Sequence[Network]) -> bool:
    return any(address.version == network.version and address in network for network in trusted)


@lru_cache(maxsize=4096)
def _counted(address: IPv4Address | IPv6Address) -> str:
    if isinstance(address, IPv4Address):
        return str(address)
    return str(ip_network((address, IPV6_PREFIX), strict=False))


class Limiter:
    """Counts requests in memory. `now` is in seconds of a clock that never goes back (`time.monotonic`)."""

    def __init__(self, *, max_names: int = MAX_NAMES, window_s: float = WINDOW_S) -> None:
        self._rings: OrderedDict[str, _Ring] = OrderedDict()
        self._max_names = max_names
        self._window_s = window_s

    def __len__(self) -> int:
        return len(self._rings)

    def admit(self, quotas: Iterable[Quota], *, now: float) -> None:
        """Count a request against all its quotas, or raise TooManyRequests and count it against none."""
        wanted = tuple(quotas)
        if refusal := self._longest(wanted, now):
            quota, wait_s = refusal
            raise TooManyRequests(
                limit=quota.limit,
                per=quota.name.partition(":")[0],
                # Whole seconds are what the header can say; rounded up, or it would be a lie.
                retry_after_s=max(1, math.ceil(wait_s)),
                hint=_hint(quota),
            )
        for quota in wanted:
            self._ring(quota).add(now)
        self._forget(now)

    def wait_s(self, quotas: Iterable[Quota], *, now: float) -> float:
        """Return how long until these would be admitted; zero: now. Nothing is counted."""
        refusal = self._longest(tuple(quotas), now)
        return 0.0 if refusal is None else refusal[1]

    def used(self, name: str, *, now: float) -> int:
        """Requests counted for a name in the last minute."""
        ring = self._rings.get(name)
        return 0 if ring is None else ring.since(now - self._window_s)

    def _longest(self, quotas: tuple[Quota, ...], now: float) -> tuple[Quota, float] | None:
        waits = []
        for quota in quotas:
            ring = self._rings.get(quota.name)
            if ring is not None and (wait := ring.wait_s(quota.limit, now, self._window_s)) > 0:
                waits.append((quota, wait))
        return max(waits, key=lambda found: found[1], default=None)

    def _ring(self, quota: Quota) -> _Ring:
        if (ring := self._rings.get(quota.name)) is None:
            ring = self._rings[quota.name] = _Ring()
        self._rings.move_to_end(quota.name)
        ring.fit(quota.limit)
        return ring

    def _forget(self, now: float) -> None:
        for _ in range(_SWEEP):
            name, ring = next(iter(self._rings.items()), (None, None))
            if name is None or ring is None:
                return
            if len(self._rings) <= self._max_names and ring.newest > now - self._window_s:
                return
            del self._rings[name]


class _Ring:
    """The moments of the last `limit` requests; eight bytes each, and only as many as there were."""

    __slots__ = ("_limit", "_moments", "_oldest")

    def __init__(self) -> None:
        self._moments = array("d")
        self._oldest = 0
        self._limit = 0

    @property
    def newest(self) -> float:
        return self._moments[self._oldest - 1] if self._moments else -math.inf

    def fit(self, limit: int) -> None:
        """Adapt the ring to another limit; the newest moments are kept."""
        if limit != self._limit:
            self._moments = array("d", self._ordered()[-limit:])
            self._oldest = 0
            self._limit = limit

    def add(self, now: float) -> None:
        if len(self._moments) < self._limit:
            self._moments.append(now)
        else:
            self._moments[self._oldest] = now
            self._oldest = (self._oldest + 1) % self._limit

    def wait_s(self, limit: int, now: float, window_s: float) -> float:
        """Return how long until fewer than `limit` lie in the window. One exactly a window old is out."""
        if len(self._moments) < limit:
            return 0.0
        # With an unchanged limit this is the oldest; after a change, the one that has to leave.
        leaves = self._moments[self._oldest] if limit == self._limit else self._ordered()[-limit]
        return max(0.0, leaves + window_s - now)

    def since(self, moment: float) -> int:
        return sum(1 for m in self._moments if m > moment)

    def _ordered(self) -> array[float]:
        return self._moments[self._oldest :] + self._moments[: self._oldest]


def _hint(quota: Quota) -> str:
    if (kind := quota.name.partition(":")[0]) == "wakes-sandbox":
        return "Wait a little; this sandbox was woken too often. Its owner can keep it awake."
    if kind.endswith("address"):
        return "Wait a little; this address sends too much, whichever key it uses."
    return "Wait a little; tiers may allow more a minute (GET /v1/pricing)."
