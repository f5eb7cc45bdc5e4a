"""Decides which headers an answer from inside may send to a browser, by the origin under which it is served.

A header can affect more than its own page: a whole origin (HSTS, NEL, Clear-Site-Data), or every name below a
domain (a cookie's `Domain`). A program inside may do that to nobody but itself.
"""

from __future__ import annotations

from enum import Enum

from sandboxer.access.ports.previews import COOKIE


class Origin(Enum):
    # Served by path: the answer shares its origin with the platform.
    PLATFORM = "platform"
    # A name below the proxy's domain, where other tenants have names too.
    SHARED = "shared"
    # A customer's own domain.
    OWN = "own"


# Isolates a page from the platform's origin: no cookies, no common origin.
GUARD = b"Content-Security-Policy: sandbox allow-scripts allow-forms allow-popups\r\n"
# Under the platform's origin a header passes only if it affects nothing but its own answer.
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
# These affect every name below the registrable domain, whoever owns it.
_BEYOND_ITS_NAME = frozenset({b"clear-site-data"})
_OUR_COOKIES = (COOKIE.encode(), b"__Host-" + COOKIE.encode())


def fit(lines: list[bytes], origin: Origin) -> list[bytes]:
    """Returns the header lines of any answer, including interim ones and upgrades, that may pass under this
    origin.
    """
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
    """Returns the line as it may pass; empty if it sets the cookie that opens previews, which only the
    platform may set.
    """
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
