"""Where a webhook may go: plain checks of a URL when it is given, and of each address when it is dialled.

The address is what counts: a name can point anywhere, and anywhere else a moment later. So the URL's check is
a courtesy, and the wall is `permitted`, asked about the very address that is connected to.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandboxer.kernel.errors import InvalidRequest

MAX_URL = 2048
_CLEAN = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Ways to write an IPv4 address as IPv6: a gateway would carry them where the IPv4 wall does not let them.
_CARRIERS = tuple(
    ipaddress.IPv6Network(net)
    for net in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
)


@dataclass(frozen=True, slots=True)
class Target:
    url: str
    host: str
    port: int


def parse_target(url: str, *, allow_private: bool) -> Target:
    """Raises InvalidRequest saying what is wrong with it."""
    if len(url) > MAX_URL or _CLEAN.fullmatch(url) is None or "\\" in url:
        raise _wrong(f"it must be a URL of at most {MAX_URL} printable ASCII characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _wrong("it is not a URL") from None
    if parts.scheme not in (("https", "http") if allow_private else ("https",)):
        raise _wrong("it must begin with https://")
    if "@" in parts.netloc or parts.fragment or port == 0:
        raise _wrong("it must not hold a user, a password, a fragment or port 0")
    host = parts.hostname or ""
    if _HOST.fullmatch(host) is None:
        raise _wrong("it names no host (write international names in punycode)")
    literal = _literal(host)
    if literal is not None and not permitted(literal, allow_private=allow_private):
        raise _wrong(f"{host} is not a public address")
    return Target(url=url, host=host, port=port or (443 if parts.scheme == "https" else 80))


def permitted(address: Address, *, allow_private: bool) -> bool:
    """May this very address be connected to?"""
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    if address.is_multicast or address.is_unspecified:
        return False
    if allow_private:
        return True
    if isinstance(address, ipaddress.IPv6Address) and (
        address.is_site_local or any(address in carrier for carrier in _CARRIERS)
    ):
        return False
    return address.is_global and not address.is_reserved


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest(field="url", why=why)
