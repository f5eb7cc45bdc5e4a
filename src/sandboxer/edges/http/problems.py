"""Turns errors into RFC 9457 problems. Only this module knows which error has which status code.

`responses_of` lists everything that an operation may answer with, for the OpenAPI document.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope
from starlette.websockets import WebSocket

from sandboxer.kernel import errors
from sandboxer.kernel.errors import Broken, InvalidRequest, SandboxerError, TooLarge, Unauthenticated
from sandboxer.wire.operations.declaration import (
    Access,
    Answer,
    Answered,
    AnsweredOrEvents,
    AnyOperation,
    Bytes,
    Events,
    Nothing,
    Upgrade,
)
from sandboxer.wire.words import PROBLEM_TYPE_PREFIX, Problem

log = logging.getLogger(__name__)
PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_S = "1"
MAX_FIELD_ERRORS = 20
# Finds what a name begins with in patterns such as `^sbx_[0-9a-z]{26}$`.
NAMED_KIND = re.compile(r"\^(?P<kind>[a-z-]+(?:_|-|\\\.))\[")
MAX_FACT_CHARACTERS = 4000
REQUEST_ID = "sandboxer.request_id"
# The scope key of headers that a refusal of this request carries.
ANSWER_HEADERS = "sandboxer.answer_headers"
# A class also stands for its subclasses, unless they have an entry of their own.
STATUS: Mapping[type[SandboxerError], int] = {
    errors.Refused: 400,
    errors.InvalidRequest: 422,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.InsufficientCredit: 402,
    errors.PaymentRefused: 402,
    errors.PaymentNeeded: 402,
    errors.SecondProofNeeded: 428,
    errors.WorkNeeded: 428,
    errors.NotAvailable: 422,
    errors.TooLarge: 413,
    errors.TooManyRequests: 429,
    errors.GuestRefused: 422,
    errors.PathNotFound: 404,
    errors.PathExists: 409,
    errors.PermissionDenied: 403,
    errors.DirectoryNotEmpty: 409,
    errors.DiskFull: 409,
    errors.Unavailable: 503,
    errors.GuestMisbehaved: 502,
    errors.Broken: 500,
    SandboxerError: 500,
}
# Refusals of the framework itself: the code, and what to do next.
FRAMEWORK: Mapping[int, tuple[str, str]] = {
    400: ("bad_request", "Correct the request and try again."),
    404: ("no_such_route", "See GET /openapi.json for the routes."),
    405: ("method_not_allowed", "Use a method named in the Allow header."),
    408: ("too_slow", "Send the whole body without long pauses."),
    413: ("too_large", "Send less, or use a streaming route."),
    415: ("unsupported_media_type", "Send JSON, with content-type application/json."),
    426: ("upgrade_required", "Open this path as a WebSocket, signed like a GET."),
    416: ("range_not_satisfiable", "Ask for a range within the size in the content-range header."),
}
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
# Errors that every request of an access can meet. Unsigned operations with a body declare what that adds.
_SIGNED = (401, 403, 408, 413, 422, 429, 500, 503)
_BY_ACCESS: Mapping[Access, tuple[int, ...]] = {
    Access.UNSIGNED: (429, 500),
    Access.LOOPBACK: (429, 500),
    Access.EITHER: (408, 413, 422, 429, 500, 503),
}
# One event of a stream; its data is the JSON of the model that the route declares.
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


def status_of(error: SandboxerError) -> int:
    return next(STATUS[kind] for kind in type(error).__mro__ if kind in STATUS)


def document(error: SandboxerError, request_id: str) -> dict[str, object]:
    """Returns the problem as it is sent. Facts that would shadow a member of the document are left out."""
    status = status_of(error)
    facts = dict(error.facts)
    hint = facts.pop("hint", None)
    if isinstance(error, Broken):
        # Internal errors are logged and never shown to the caller.
        facts, detail = {}, "Something broke on our side."
    else:
        detail = str(error)
    base = _members(status, error.code, detail, str(hint or error.next_step), request_id)
    extra = {name: _plain(value) for name, value in facts.items() if name not in base and value is not None}
    return {**base, **extra}


def response(
    error: SandboxerError, request_id: str, extra_headers: Mapping[str, str] | None = None
) -> Response:
    status = status_of(error)
    headers = dict(extra_headers or {})
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = 'Bearer realm="sandboxer", error="invalid_request"'
    if status == 503:
        headers["retry-after"] = RETRY_AFTER_S
    if status == 429:
        headers["retry-after"] = str(error.facts.get("retry_after_s", RETRY_AFTER_S))
    return _render(document(error, request_id), headers)


def model_of(request: Request, error: SandboxerError) -> Problem:
    """Returns the problem as a part of another answer."""
    return Problem.model_validate(document(error, request_id_of(request.scope)))


def framework_response(
    status: int, detail: str, request_id: str, headers: Mapping[str, str] | None = None
) -> Response:
    """Returns a refusal that belongs to HTTP itself: no such route, wrong method, bad range."""
    code, next_step = FRAMEWORK.get(status, FRAMEWORK[400])
    return _render(_members(status, code, detail, next_step, request_id), dict(headers or {}))


async def on_sandboxer_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, SandboxerError)
    request_id = request_id_of(request.scope)
    if isinstance(error, Broken):
        log.error("broken (%s): %s", request_id, error, exc_info=error)
    if status_of(error) >= 500:
        request.app.state.platform.metrics.failures.labels(error.code).inc()
    return response(error, request_id, request.scope.get(ANSWER_HEADERS))


async def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, SandboxerError):
        # The framework wraps the error that reading the body raised.
        return await on_sandboxer_error(request, error.__cause__)
    if error.status_code == 400 and error.__cause__ is not None:
        return response(
            InvalidRequest(field="body", why="it is not JSON in UTF-8"), request_id_of(request.scope)
        )
    detail = error.detail if isinstance(error.detail, str) else "The request was refused."
    return framework_response(error.status_code, detail, request_id_of(request.scope), error.headers)


async def on_invalid_upgrade(websocket: WebSocket, error: Exception) -> None:
    assert isinstance(error, WebSocketRequestValidationError)
    await websocket.send_denial_response(response(invalid(error.errors()), request_id_of(websocket.scope)))


async def on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return response(invalid(error.errors()), request_id_of(request.scope))


def invalid(found: Sequence[Mapping[str, object]]) -> InvalidRequest:
    """Returns validation errors in our words. What the caller sent is never echoed, because it may be a
    secret.
    """
    listed = [{"field": _field(e.get("loc")), "why": _why(e)} for e in found[:MAX_FIELD_ERRORS]]
    first = listed[0] if listed else {"field": "body", "why": "invalid"}
    return InvalidRequest(**first, errors=listed)


def _why(found: Mapping[str, object]) -> str:
    """Describes a pattern: a person who gave half an id is shown the form of a whole one, not a regular
    expression.
    """
    context = found.get("ctx")
    pattern = str(context.get("pattern", "")) if isinstance(context, Mapping) else ""
    begins = NAMED_KIND.match(pattern)
    if begins is None:
        return str(found.get("msg", "invalid"))
    letters = " and 26 letters and digits" if pattern.endswith("]{26}$") else "…"
    return f"it should be {begins['kind'].replace(chr(92), '')}{letters}"


def request_id_of(scope: Scope) -> str:
    return str(scope.get(REQUEST_ID, "req_unknown"))


def too_large(limit: int) -> TooLarge:
    return TooLarge(what="The body", limit=f"{limit} bytes")


def _members(status: int, code: str, detail: str, next_step: str, request_id: str) -> dict[str, object]:
    return {
        "type": PROBLEM_TYPE_PREFIX + code,
        "title": code.replace("_", " ").capitalize(),
        "status": status,
        "detail": _printable(detail),
        "code": code,
        "fault": "caller" if status < 500 else "platform",
        "next_step": _printable(next_step),
        "request_id": request_id,
    }


def _render(members: Mapping[str, object], headers: Mapping[str, str]) -> Response:
    status = members["status"]
    assert isinstance(status, int)
    return Response(json.dumps(members).encode(), status, headers, media_type=PROBLEM_JSON)


def _field(location: object) -> str:
    parts = location if isinstance(location, tuple | list) else ("body",)
    words = [str(part) for part in parts if not str(part).startswith("function-")]
    return _printable(".".join(words[1:] or words))


def _plain(value: object) -> object:
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {_printable(str(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return _printable(str(value))


def _printable(text: str) -> str:
    """Replaces broken UTF-8, which names inside a sandbox may contain and JSON may not."""
    return text[:MAX_FACT_CHARACTERS].encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def responses_of(operation: AnyOperation) -> Responses:
    """Returns everything that an operation may answer with besides its model."""
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
    """Returns the description of a 200 answer with server-sent events."""
    return {"description": description, "content": {"text/event-stream": {"schema": SERVER_EVENT}}}


def octets(description: str, media_type: str = "application/octet-stream") -> dict[str, Any]:
    return {
        "description": description,
        "content": {media_type: {"schema": {"type": "string", "format": "binary"}}},
    }
