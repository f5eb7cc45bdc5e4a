"""Where a webhook may go: plain checks of a URL when it is given, and of each address when it is dialled.

The address is what counts: a name can point anywhere, and anywhere else a moment later. So the URL's check is
a courtesy, and the wall is `permitted`, asked about the very address that is connected to.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from sandboxer.kernel.addresses import Address, permitted
from sandboxer.kernel.errors import InvalidRequest

MAX_URL = 2048
_CLEAN = re.compile(r"[\x21-\x7e]+")
_HOST = re.compile(r"[A-Za-z0-9._-]{1,253}|[0-9A-Fa-f:.]{2,45}")


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


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _wrong(why: str) -> InvalidRequest:
    return InvalidRequest(field="url", why=why)
