"""How many requests who may send, and who that is on the network. Pure decisions; `limiter.py` counts.

A request is counted three times: for its key, for the account at the root of its ancestry (cutting children
must not multiply an allowance) and for the address it came from. All must have room.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.pricing import TierPrices, entitlement
from sandboxer.wire.operations.terms import RateClass

Network: TypeAlias = IPv4Network | IPv6Network
# One subscriber's share of IPv6: whoever has one address there has all of them.
IPV6_PREFIX = 64
# What one party is given whole: 65,536 subscribers' shares of IPv6, 256 addresses of IPv4.
IPV6_SITE = 48
IPV4_SITE = 24
# A list longer than this was not written by any proxy of ours.
MAX_HOPS = 32
MAX_CLAIM = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPolicy:
    """All per minute."""

    tiers: TierPrices = field(default_factory=TierPrices)
    # Accounts with a bucket and no entitlement.
    bucket_only: int = 120
    # From one address: anything, and on auth routes.
    address: int = 1200
    auth_address: int = 10
    # On auth routes by one key.
    auth_key: int = 10
    # At ports: knocks in vain from one address, and how often sleeping sandboxes are woken by requests.
    port_refusals: int = 120
    wakes_address: int = 6
    wakes_sandbox: int = 6

    def __post_init__(self) -> None:
        if min(getattr(self, one.name) for one in fields(self) if one.name != "tiers") < 1:
            raise InvalidRequest(field="limits", why="a limit of requests is at least 1 a minute")


LIMITS = LimitPolicy()


@dataclass(frozen=True, slots=True, kw_only=True)
class Sender:
    """What limits need to know of a caller."""

    public_key: str
    # The account at the top of the caller's ancestry: itself, unless it is delegated.
    root: str
    is_owner: bool = False
    is_root_owner: bool = False
    tier: int | None = None
    root_tier: int | None = None


@dataclass(frozen=True, slots=True)
class Quota:
    """At most `limit` in any minute for `name`."""

    name: str
    limit: int


def requests_per_minute(
    tier: int | None, *, is_owner: bool = False, policy: LimitPolicy = LIMITS
) -> int | None:
    """7N for tier N, at least the configured number, which holds without a tier; None (no limit): the owner.

    The larger of both: whoever buys a tier may never send less than before.
    """
    if is_owner:
        return None
    if tier is None:
        return policy.bucket_only
    return max(policy.bucket_only, entitlement(tier, policy.tiers).requests_per_minute)


def free_slots(tier: int | None, *, policy: LimitPolicy = LIMITS) -> int:
    """How many sandboxes at once run at rate zero: floor((N−1)/4)+1, none without a tier."""
    return 0 if tier is None else entitlement(tier, policy.tiers).slots


def quotas(
    route: RateClass, *, address: str, caller: Sender | None, policy: LimitPolicy = LIMITS
) -> tuple[Quota, ...]:
    """Everything that must have room for this request. The owner's key is never limited, anywhere."""
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
    return tuple(found)


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The proxies an operator trusts: addresses or networks. Anything else is refused by name."""
    found = []
    for text in texts:
        try:
            found.append(ip_network(text.strip()))
        except ValueError as error:
            raise InvalidRequest(field="trusted_proxies", why=str(error)) from None
    return tuple(found)


def client_address(peer: str | None, forwarded: Sequence[str], trusted: Sequence[Network]) -> str:
    """Whom to count: an IPv4 address, an IPv6 /64, or `local` for a peer without an address.

    `forwarded` are the values of X-Forwarded-For in the order received. They are read from the right, each
    believed only because the one after it, beginning with the peer itself, is a trusted proxy. Nothing is
    trusted unless it was configured; what cannot be read is not believed.
    """
    hop = _parse(peer or "")
    if hop is None:
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
    """The network in which one party may well have every address: who has many there is one, as caps count.

    `address` is what `client_address` gave; what is no address stands for itself.
    """
    try:
        found = ip_network(address)
    except ValueError:
        return address
    site = IPV4_SITE if isinstance(found, IPv4Network) else IPV6_SITE
    return str(found.supernet(new_prefix=site)) if found.prefixlen > site else address


def is_trusted(peer: str | None, trusted: Sequence[Network]) -> bool:
    """Is this peer a proxy that the operator named?"""
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
