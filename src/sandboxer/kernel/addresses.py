"""Which addresses the world may be reached at: asked about the very address that is connected to.

A name can point anywhere, and anywhere else a moment later, so a check of names is a courtesy and
this is the wall.
"""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Ways to write an IPv4 address as IPv6: a gateway would carry them where the IPv4 wall does not let them.
_CARRIERS = tuple(
    ipaddress.IPv6Network(net)
    for net in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
)
# `is_global` takes them for public: protocol assignments (one cloud's metadata is there), the way from 6to4,
# and another cloud's own platform address.
_NOT_PUBLIC = tuple(
    ipaddress.IPv4Network(net) for net in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")
)


def permitted(address: Address, *, allow_private: bool) -> bool:
    """May this very address be connected to?"""
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    if address.is_multicast or address.is_unspecified:
        return False
    if allow_private:
        return True
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_site_local or any(address in carrier for carrier in _CARRIERS):
            return False
    elif any(address in net for net in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_reserved
