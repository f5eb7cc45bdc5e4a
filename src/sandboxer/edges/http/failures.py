"""Which problems a route may answer with, for the OpenAPI document. Every route says all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxer.edges.http.problems import PROBLEM_JSON

_MEANINGS: Mapping[int, str] = {
    400: "The request is malformed.",
    401: "Not signed, or not signed well; `reason` and `next_step` say what to do.",
    402: "Funding needed; the problem says how much is missing.",
    403: "Known, but not allowed.",
    404: "There is no such thing, or it is not yours to see.",
    405: "This path does not know this method.",
    408: "The body came too slowly.",
    409: "The present state does not allow this.",
    413: "The body is too large.",
    416: "The range lies outside the file.",
    422: "A field is wrong, or names something that is not available here.",
    426: "This path speaks WebSocket only.",
    428: "A second proof or a proof of work is needed: answer the challenge, and repeat.",
    429: "Too many requests; Retry-After says when to come back.",
    500: "A bug; tell the operator, with the request id.",
    502: "The supervisor in the sandbox broke its protocol.",
    503: "Not possible right now; retry later.",
}
_PROBLEM = {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}}
# Any signed request can meet these.
_ALWAYS = (401, 403, 408, 413, 422, 429, 500, 503)

# One event of a stream; its data is the JSON of the model that the route names.
SERVER_EVENT: dict[str, Any] = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"type": "string"},
        "id": {"type": "string"},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}

Responses = dict[int | str, dict[str, Any]]


def failures(*statuses: int) -> Responses:
    """For a signed route."""
    return _responses(*_ALWAYS, *statuses)


def unsigned_failures(*statuses: int) -> Responses:
    return _responses(429, 500, *statuses)


def stranger_failures(*statuses: int) -> Responses:
    """For a route that anyone may send a body to."""
    return _responses(408, 413, 422, 429, 500, 503, *statuses)


def inside(*statuses: int) -> Responses:
    """For a route that reaches into a sandbox: it may be missing, in another state, or misbehave."""
    return failures(404, 409, 502, *statuses)


def _responses(*statuses: int) -> Responses:
    return {
        status: {"description": _MEANINGS[status], "content": _PROBLEM} for status in sorted(set(statuses))
    }


def stream(description: str) -> dict[str, Any]:
    """A 200 answer of server-sent events."""
    return {"description": description, "content": {"text/event-stream": {"schema": SERVER_EVENT}}}


def octets(description: str, media_type: str = "application/octet-stream") -> dict[str, Any]:
    return {
        "description": description,
        "content": {media_type: {"schema": {"type": "string", "format": "binary"}}},
    }
