"""The proxy's own answers, and which headers of an answer from inside may reach a browser.

Its own are problems that say whose fault it is, and redirects; each is a whole message. What a program inside
answers is judged by the origin under which it is served: a header can affect more than its own page, a whole
origin (HSTS, NEL, Clear-Site-Data), or every name below a domain (a cookie's `Domain`). A program inside may
do that to nobody but itself.
"""

from __future__ import annotations

import json
from enum import Enum

from sandboxer.access.ports.ports import COOKIE
from sandboxer.access.ports.targets import Target
from sandboxer.edges.front.acceptor import (
    CALLER,
    PLATFORM,
    SANDBOX,
    bad_request,
    message,
    problem,
    too_many_connections,
    too_slow,
)
from sandboxer.edges.http.problems import status_of
from sandboxer.kernel.errors import (
    BackendLost,
    Broken,
    Conflict,
    GuestMisbehaved,
    GuestRefused,
    InsufficientCredit,
    NoCapacity,
    NotFound,
    SandboxerError,
)

__all__ = [
    "CALLER",
    "GUARD",
    "PLATFORM",
    "SANDBOX",
    "Origin",
    "bad_answer",
    "bad_request",
    "fit",
    "misdirected",
    "name_of",
    "not_running",
    "of_error",
    "plain",
    "problem",
    "redirect",
    "too_many_connections",
    "too_slow",
    "too_slow_inside",
]


def of_error(error: SandboxerError, target: Target | None = None) -> bytes:
    """Translates an error into what the caller of a port is told."""
    is_asleep = isinstance(error, NotFound) or error.facts.get("reason") == "asleep"
    if target is not None and target.takes_traffic and is_asleep:
        return not_running(target.sandbox_id)
    facts = {
        name: value for name, value in error.facts.items() if name in ("reason", "state", "retry_after_s")
    }
    hint = str(error.facts.get("hint", error.next_step))
    if isinstance(error, GuestRefused):
        return problem(
            502,
            "nothing_listens",
            f"Nothing in the sandbox answers on port {None if target is None else target.port}.",
            fault=SANDBOX,
            next_step="Start a server there that listens on this port (127.0.0.1 or 0.0.0.0), and try again.",
        )
    if isinstance(error, GuestMisbehaved | BackendLost):
        return problem(502, error.code, str(error), fault=SANDBOX, next_step=hint)
    if isinstance(error, InsufficientCredit):
        return problem(
            503,
            "cannot_wake",
            "The sandbox sleeps, and its account has too little credit to wake it.",
            fault=SANDBOX,
            next_step="Its owner has to add credit; then the same address works again.",
        )
    if isinstance(error, Conflict):
        return problem(503, "not_ready", str(error), fault=SANDBOX, next_step="Try again in a moment.")
    if isinstance(error, NoCapacity):
        return problem(503, "too_many_streams", str(error), fault=SANDBOX, next_step="Try again in a moment.")
    status = status_of(error)
    detail = "Something broke on our side." if isinstance(error, Broken) else str(error)
    fault = CALLER if status < 500 else SANDBOX if facts.get("reason") == "asleep" else PLATFORM
    return problem(status, error.code, detail, fault=fault, next_step=hint, facts=facts)


def bad_answer(why: str) -> bytes:
    return problem(
        502,
        "bad_answer",
        f"What answers on this port in the sandbox does not speak HTTP/1.1: {why}.",
        fault=SANDBOX,
        next_step="Mend the program in the sandbox; it must be an HTTP server.",
    )


def too_slow_inside(seconds: float) -> bytes:
    return problem(
        504,
        "no_answer",
        f"The program in the sandbox gave no answer within {seconds:g} s.",
        fault=SANDBOX,
        next_step="Look at the program's log; if it needs long, let it answer early and stream.",
    )


def not_running(sandbox_id: str) -> bytes:
    """Says that there is nothing behind a port any more, in the words that clients of E2B look for."""
    said = {"sandboxId": sandbox_id.replace("_", "-"), "message": "The sandbox was not found", "code": 502}
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    return message(502, headers, json.dumps(said).encode())


def misdirected(name: str) -> bytes:
    return problem(
        421,
        "misdirected",
        f"{name[:253]} is no address of this platform.",
        fault=CALLER,
        next_step="Check the host name; a domain of your own has to be attached to a service first.",
    )


def redirect(location: bytes, cookie: str) -> bytes:
    """Redirects to the same page without the token in its address; from now on the cookie replaces it."""
    headers = {
        "location": location.decode("latin-1"),
        "set-cookie": cookie,
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
    }
    return message(303, headers, b"")


def plain(text: str) -> bytes:
    return message(200, {"content-type": "text/plain", "cache-control": "no-store"}, text.encode())


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
            return [*(line for line in lines if _is_harmless(name_of(line))), GUARD]
        case Origin.SHARED:
            kept = (line for line in lines if name_of(line) not in _BEYOND_ITS_NAME)
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
    if name_of(line) != b"set-cookie":
        return line
    value = line[line.find(b":") + 1 :].strip(b" \t\r\n")
    pair, *attributes = value.split(b";")
    if pair.partition(b"=")[0].strip(b" \t") in _OUR_COOKIES:
        return b""
    kept = [one for one in attributes if keeps_domain or not _is_domain(one)]
    return b"Set-Cookie: " + b";".join([pair, *kept]) + b"\r\n"


def _is_domain(attribute: bytes) -> bool:
    return attribute.partition(b"=")[0].strip(b" \t").lower() == b"domain"


def name_of(line: bytes) -> bytes:
    """Returns the name of a header's line, in small letters."""
    return line[: line.find(b":")].lower()
