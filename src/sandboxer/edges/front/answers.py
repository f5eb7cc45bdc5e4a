"""What a listener says before any route was asked: whole messages that close the connection."""

from __future__ import annotations

import http
import json
from collections.abc import Mapping

from sandboxer.edges.http.problems import PROBLEM_JSON
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
    return message(status, headers, json.dumps(members).encode())


def bad_request(why: str, status: int = 400) -> bytes:
    return problem(
        status,
        "bad_request",
        f"The request was not passed on: {why}.",
        fault=CALLER,
        next_step="Send a plain HTTP/1.1 request.",
    )


def too_slow() -> bytes:
    return problem(
        408,
        "too_slow",
        "The request came too slowly.",
        fault=CALLER,
        next_step="Send it without long pauses.",
    )


def too_many_connections() -> bytes:
    return problem(
        503,
        "too_many_connections",
        "Too many connections are open.",
        fault=CALLER,
        next_step="Close some, or use them for several requests.",
    )


def message(status: int, headers: Mapping[str, str], body: bytes) -> bytes:
    phrase = http.HTTPStatus(status).phrase
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in headers.items())]
    lines += [f"content-length: {len(body)}", "connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1", "replace") + body
