"""What an operation may answer with, for the OpenAPI document: all of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sandboxer.edges.http.problems import PROBLEM_JSON
from sandboxer.wire.operations.declaration import (
    Answer,
    Answered,
    AnsweredOrEvents,
    AnyOperation,
    Bytes,
    Events,
    Nothing,
    Upgrade,
)
from sandboxer.wire.operations.terms import Access

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
# What every request of an access can meet. Unsigned operations with a body name what that adds.
_SIGNED = (401, 403, 408, 413, 422, 429, 500, 503)
_BY_ACCESS: Mapping[Access, tuple[int, ...]] = {
    Access.UNSIGNED: (429, 500),
    Access.LOOPBACK: (429, 500),
    Access.EITHER: (408, 413, 422, 429, 500, 503),
}

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


def responses_of(operation: AnyOperation) -> Responses:
    """All that an operation may answer with beside its model."""
    refused = _responses(*_BY_ACCESS.get(operation.access, _SIGNED), *operation.failures)
    return {**refused, **_successes(operation.answer)}


def _successes(answer: Answer[Any]) -> Responses:
    match answer:
        case Answered(also=also) if also:
            return {status: {"model": answer.model, "description": words} for status, words in also}
        case Answered(other_form=(media_type, words)):
            return {200: {"content": {media_type: {"schema": {"type": "string"}}}, "description": words}}
        case AnsweredOrEvents() | Events():
            return {200: stream(answer.words)}
        case Bytes(is_text=True):
            kind = "object" if answer.media_type == "application/json" else "string"
            content = {answer.media_type: {"schema": {"type": kind}}}
            return {200: {"description": answer.words, "content": content}}
        case Bytes(part_words=str(part)):
            return {200: octets(answer.words, answer.media_type), 206: octets(part, answer.media_type)}
        case Bytes():
            return {200: octets(answer.words, answer.media_type)}
        case Nothing(words=str(words)) | Upgrade(words=words):
            return {answer.status: {"description": words}}
    return {}


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
