"""One judge for everything that dials on a tenant's behalf: sandboxes' egress, webhooks, proofs of domains.

A name can point anywhere, and anywhere else a moment later, so the question is asked about the very address
that is connected to. This host's own addresses lead back behind its walls; they are nobody's to reach, and
neither are the networks that its operator names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache

from sandboxer.kernel.addresses import permitted
from sandboxer.kernel.own_addresses import OwnAddresses

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Verdict(Enum):
    GOOD = "good"
    NOT_PUBLIC = "not_public"
    # This host, or what its operator keeps from tenants.
    OWN = "own"


class DialJudge:
    """`allow_private` is for an operator's own use: then private addresses and this host may be dialled."""

    def __init__(self, *, allow_private: bool = False, never: Sequence[Network] = ()) -> None:
        self._allow_private = allow_private
        self._never = tuple(never)
        self._own = OwnAddresses()

    def judge(self, address: str) -> Verdict:
        if not _is_permitted(address, self._allow_private):
            return Verdict.NOT_PUBLIC
        if self._is_never(address) or (not self._allow_private and self._own.has(address)):
            return Verdict.OWN
        return Verdict.GOOD

    def _is_never(self, address: str) -> bool:
        if not self._never:
            return False
        parsed = ipaddress.ip_address(address)
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(parsed in network for network in self._never)


@lru_cache(maxsize=4096)
def _is_permitted(address: str, allow_private: bool) -> bool:
    try:
        # A scope (`fe80::1%eth0`) belongs to what is near.
        if "%" in address and not allow_private:
            return False
        return permitted(ipaddress.ip_address(address.partition("%")[0]), allow_private=allow_private)
    except ValueError:
        return False
