"""What the proxy itself answers: problems that say whose fault it is, and redirects; whole messages."""

from __future__ import annotations

import http
import json
from collections.abc import Mapping

from sandboxer.edges.http.problems import PROBLEM_JSON, status_of
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
from sandboxer.kernel.ids import new_id
from sandboxer.wire.problems import PROBLEM_TYPE_PREFIX

CALLER, SANDBOX, PLATFORM = "caller", "sandbox", "platform"
_TRY_LATER = frozenset({429, 503, 504})


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    fault: str,
    next_step: str,
    facts: Mapping[str, object] | None = None,
) -> bytes:
    """Closes the connection: what is left of a refused request is not worth reading."""
    members = {
        **{name: value for name, value in (facts or {}).items() if isinstance(value, str | int)},
        "type": PROBLEM_TYPE_PREFIX + code,
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": detail,
        "code": code,
        "fault": fault,
        "next_step": next_step,
        "request_id": new_id("req"),
    }
    headers = {"content-type": PROBLEM_JSON, "cache-control": "no-store"}
    if status in _TRY_LATER:
        headers["retry-after"] = str((facts or {}).get("retry_after_s", 1))
    return _message(status, headers, json.dumps(members).encode())


def of_error(error: SandboxerError, port: int | None = None) -> bytes:
    """An error of the rooms as the asker of a port is told it."""
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


def bad_request(why: str, status: int = 400) -> bytes:
    return problem(
        status,
        "bad_request",
        f"The request was not passed on: {why}.",
        fault=CALLER,
        next_step="Send a plain HTTP/1.1 request.",
    )


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


def too_slow_outside() -> bytes:
    return problem(
        408,
        "too_slow",
        "The request came too slowly.",
        fault=CALLER,
        next_step="Send it without long pauses.",
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
    """To the same page without the token in its address, which a cookie stands for from now on."""
    headers = {
        "location": location.decode("latin-1"),
        "set-cookie": cookie,
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
    }
    return _message(303, headers, b"")


def plain(text: str) -> bytes:
    return _message(200, {"content-type": "text/plain", "cache-control": "no-store"}, text.encode())


def _message(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    phrase = http.HTTPStatus(status).phrase
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    lines += [f"content-length: {len(body)}", "connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + body
