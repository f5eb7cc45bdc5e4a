"""The proxy's own answers: problems that say whose fault it is, and redirects. Each is a whole message."""

from __future__ import annotations

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
    SandboxerError,
)

__all__ = [
    "CALLER",
    "PLATFORM",
    "SANDBOX",
    "bad_answer",
    "bad_request",
    "misdirected",
    "of_error",
    "plain",
    "problem",
    "redirect",
    "too_many_connections",
    "too_slow",
    "too_slow_inside",
]


def of_error(error: SandboxerError, port: int | None = None) -> bytes:
    """Translates an error into what the caller of a port is told."""
    facts = {
        name: value for name, value in error.facts.items() if name in ("reason", "state", "retry_after_s")
    }
    hint = str(error.facts.get("hint", error.next_step))
    if isinstance(error, GuestRefused):
        return problem(
            502,
            "nothing_listens",
            f"Nothing in the sandbox answers on port {port}.",
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
