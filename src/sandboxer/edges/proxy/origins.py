"""What an answer from inside may say to a browser, by the origin under which it is served. Decisions only.

A header can act on more than its own page: on a whole origin (HSTS, NEL, Clear-Site-Data), or on every name
below a domain (a cookie's `Domain`). A program inside may do that to nobody but itself.
"""

from __future__ import annotations

from enum import Enum

from sandboxer.access.ports.previews import COOKIE


class Origin(Enum):
    # The door by path: the answer shares its origin with the platform.
    PLATFORM = "platform"
    # A name below the proxy's domain: neighbours of other tenants have names there too.
    SHARED = "shared"
    # A customer's own domain.
    OWN = "own"


# Keeps a page below the platform's origin from being the platform's: no cookies, no common origin.
GUARD = b"Content-Security-Policy: sandbox allow-scripts allow-forms allow-popups\r\n"
# Under the platform's origin a header passes only if it acts on the one answer that carries it.
_HARMLESS = frozenset(
    {
        b"accept-ranges",
        b"access-control-allow-headers",
        b"access-control-allow-methods",
        b"access-control-allow-origin",
        b"access-control-expose-headers",
        b"access-control-max-age",
        b"age",
        b"allow",
        b"cache-control",
        b"content-disposition",
        b"content-encoding",
        b"content-language",
        b"content-length",
        b"content-location",
        b"content-range",
        b"content-security-policy",
        b"content-type",
        b"date",
        b"etag",
        b"expires",
        b"last-modified",
        b"location",
        b"pragma",
        b"referrer-policy",
        b"retry-after",
        b"sec-websocket-accept",
        b"sec-websocket-extensions",
        b"sec-websocket-protocol",
        b"server",
        b"vary",
        b"warning",
        b"x-content-type-options",
        b"x-frame-options",
        b"x-robots-tag",
    }
)
# Reaches every name below the registrable domain, whoever's it is.
_BEYOND_ITS_NAME = frozenset({b"clear-site-data"})
_OUR_COOKIES = (COOKIE.encode(), b"__Host-" + COOKIE.encode())


def fit(lines: list[bytes], origin: Origin) -> list[bytes]:
    """The header lines of any answer, interim ones and upgrades included, that may pass there."""
    match origin:
        case Origin.PLATFORM:
            return [*(line for line in lines if _is_harmless(_name(line))), GUARD]
        case Origin.SHARED:
            kept = (line for line in lines if _name(line) not in _BEYOND_ITS_NAME)
            return [fitted for line in kept if (fitted := _cookie(line, keeps_domain=False))]
        case Origin.OWN:
            return [fitted for line in lines if (fitted := _cookie(line, keeps_domain=True))]


def _is_harmless(name: bytes) -> bool:
    # Applications' own headers mean nothing to browsers.
    return name in _HARMLESS or (name.startswith(b"x-") and not name.startswith(b"x-sandboxer"))


def _cookie(line: bytes, *, keeps_domain: bool) -> bytes:
    """The line as it may pass; empty if it sets the cookie that opens previews, which is ours to give."""
    if _name(line) != b"set-cookie":
        return line
    value = line[line.find(b":") + 1 :].strip(b" \t\r\n")
    pair, *attributes = value.split(b";")
    if pair.partition(b"=")[0].strip(b" \t") in _OUR_COOKIES:
        return b""
    kept = [one for one in attributes if keeps_domain or not _is_domain(one)]
    return b"Set-Cookie: " + b";".join([pair, *kept]) + b"\r\n"


def _is_domain(attribute: bytes) -> bool:
    return attribute.partition(b"=")[0].strip(b" \t").lower() == b"domain"


def _name(line: bytes) -> bytes:
    return line[: line.find(b":")].lower()
