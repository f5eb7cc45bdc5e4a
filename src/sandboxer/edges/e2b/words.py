"""Says our problems in E2B's words: which status they have there, and which code of Connect.

Our own words are in the message: what happened and what to do next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# What E2B's own proxy says of a sandbox that is gone or paused; clients look for these words.
NOT_RUNNING = "The sandbox was not found"
# And what its clients say when one ends under a request.
_ENDED = "the sandbox was killed or reached its end of life while the request was in flight"
_CODES: Mapping[int, str] = {
    400: "invalid_argument",
    401: "unauthenticated",
    402: "failed_precondition",
    403: "permission_denied",
    404: "not_found",
    409: "failed_precondition",
    413: "resource_exhausted",
    429: "resource_exhausted",
    500: "internal",
    502: "unavailable",
    503: "unavailable",
    507: "resource_exhausted",
}
# What E2B says with another status than we do.
_STATUS = {"disk_full": 507}
_NOT_THERE = frozenset({422, 428})


def status_of(problem: Mapping[str, Any]) -> int:
    ours = int(problem["status"])
    return _STATUS.get(problem["code"], 400 if ours in _NOT_THERE else ours)


def message_of(problem: Mapping[str, Any]) -> str:
    return f"{str(problem['detail']).rstrip('.')}. {problem['next_step']}"


def error_of(problem: Mapping[str, Any]) -> dict[str, str]:
    """Returns the problem as an error of Connect."""
    if problem["code"] == "path_exists":
        return {"code": "already_exists", "message": message_of(problem)}
    if is_of_sandbox(problem):
        return {"code": "unavailable", "message": f"{NOT_RUNNING}: {_ENDED}: {message_of(problem)}"}
    if problem.get("reason") == "timed_out":
        return {"code": "deadline_exceeded", "message": message_of(problem)}
    return {"code": _CODES.get(status_of(problem), "unknown"), "message": message_of(problem)}


def is_of_sandbox(problem: Mapping[str, Any]) -> bool:
    """Tells whether it is the sandbox that is not there, and not something in it."""
    if problem["code"] == "not_found":
        return bool(problem.get("what") == "sandbox")
    return problem["code"] in ("illegal_transition", "backend_lost")
