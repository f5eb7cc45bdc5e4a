"""Turns errors into RFC 9457 problems. Only this module knows which error has which status code.

`responses_of` lists everything that an operation may answer with, for the OpenAPI document.

Says in plain words what is wrong with a request's JSON: where it breaks off, or which field is wrong, what
is allowed there, and an example.

What the caller sent is never repeated, because it may be a secret.
"""

from __future__ import annotations

import difflib
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope
from starlette.websockets import WebSocket

from sandboxer.edges.http.matcher import matched, operation_of
from sandboxer.kernel import errors
from sandboxer.kernel.errors import (
    Broken,
    InvalidRequest,
    SandboxerError,
    TooLarge,
    Unauthenticated,
    in_plain_words,
)
from sandboxer.wire.next_steps import LISTS
from sandboxer.wire.operations.declaration import (
    Access,
    Answer,
    Answered,
    AnsweredOrEvents,
    AnyOperation,
    Bytes,
    Events,
    Json,
    Nothing,
    Upgrade,
)
from sandboxer.wire.words import PROBLEM_TYPE_PREFIX, Problem, names_in

MAX_FIELD_ERRORS = 20
_HOW = "Send one JSON object in UTF-8, with names and texts in double quotes."
# What a reader of JSON says, and what that means.
_SYNTAX: Mapping[str, str] = {
    "Expecting property name enclosed in double quotes": "a name in double quotes is missing here",
    "Illegal trailing comma before end of object": "there is a comma too much here",
    "Illegal trailing comma before end of array": "there is a comma too much here",
    "Expecting value": "a value is missing here",
    "Expecting ',' delimiter": "a comma is missing here",
    "Expecting ':' delimiter": "a colon is missing here",
    "Unterminated string starting at": "the text that begins here has no end",
    "Extra data": "the JSON has ended before this",
    "Invalid control character at": "a control character is here; write a new line as \\n",
    "Invalid \\escape": "there is no such escape",
    "Invalid \\uXXXX escape": "four hex digits are missing after \\u",
}


def unreadable(cause: BaseException) -> InvalidRequest:
    """Returns the error of a body that is not text at all."""
    why = "it is nested too deeply" if isinstance(cause, RecursionError) else "it is not JSON"
    if isinstance(cause, UnicodeDecodeError):
        line, column = _place(cause.object[: cause.start].decode("utf-8", "replace"), cause.start)
        return _at(line, column, f"byte {cause.start + 1} is no UTF-8")
    return InvalidRequest(field="body", why=why, hint=_HOW)


def invalid(
    found: Sequence[Mapping[str, Any]], operation: AnyOperation | None, body: object = None
) -> InvalidRequest:
    """Returns what a validation found, the first mistake first."""
    if found and found[0].get("type") == "json_invalid":
        return _broken_json(found[0], body)
    if isinstance(body, bytes) and body and found[0].get("loc") == ("body",):
        # The framework reads no JSON from what is not called so; `curl -d` calls it a form.
        mistake = {"field": "body", "why": "it did not come as JSON"}
        hint = "Send content-type: application/json; curl does with --json."
        return InvalidRequest(**mistake, errors=[mistake], hint=hint)
    listed = [_mistake(one, operation) for one in found[:MAX_FIELD_ERRORS]]
    first = listed[0] if listed else {"field": "body", "why": "it is not what this operation takes"}
    return InvalidRequest(**first, errors=listed)


def _broken_json(found: Mapping[str, Any], body: object) -> InvalidRequest:
    said = str((found.get("ctx") or {}).get("error", ""))
    why = _SYNTAX.get(said, "this is no JSON")
    where = found.get("loc", ())[-1:]
    if not isinstance(body, str) or not where or not isinstance(where[0], int):
        return InvalidRequest(field="body", why=f"it is not JSON: {why}", hint=_HOW)
    return _at(*_place(body, where[0]), why)


def _place(text: str, at: int) -> tuple[int, int]:
    before = text[:at]
    return before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1


def _at(line: int, column: int, why: str) -> InvalidRequest:
    mistake = {"field": "body", "why": f"line {line}, column {column}: {why}"}
    return InvalidRequest(**mistake, line=line, column=column, errors=[mistake], hint=_HOW)


def _mistake(found: Mapping[str, Any], operation: AnyOperation | None) -> dict[str, Any]:
    parts = [str(part) for part in found.get("loc") or ("body",) if not str(part).startswith("function-")]
    field = ".".join(parts[1:] or parts).encode("utf-8", "surrogateescape").decode("utf-8", "replace")[:200]
    schema = _schema_at(parts, operation)
    examples = schema.get("examples") or []
    why = _why(found, schema, parts, operation)
    if examples and isinstance(examples[0], str | int | float):
        why = why if str(examples[0]) in why else f"{why}, as in {examples[0]}"
        return {"field": field, "why": why, "example": examples[0]}
    return {"field": field, "why": why}


def _why(
    found: Mapping[str, Any], schema: Mapping[str, Any], parts: Sequence[str], operation: AnyOperation | None
) -> str:
    match found.get("type"):
        case "missing":
            return "it is missing"
        case "extra_forbidden":
            known = list(_schema_at(parts[:-1], operation).get("properties", {}))
            close = difflib.get_close_matches(parts[-1], known, n=1)
            listed = ", ".join(known[:40])
            hint = (
                f"did you mean {close[0]}?" if close else f"known are {listed}" if known else "leave it out"
            )
            return f"there is no such field; {hint}"
        case "string_pattern_mismatch":
            return _form(schema, str((found.get("ctx") or {}).get("pattern", "")))
        case "literal_error" | "enum":
            return f"it should be {(found.get('ctx') or {}).get('expected')}"
    return in_plain_words(str(found.get("msg", "it is not what is taken here")))


def _form(schema: Mapping[str, Any], pattern: str) -> str:
    """Describes a pattern: whoever gave half an id is shown the form of a whole one."""
    if begins := re.match(r"\^(?P<kind>[a-z-]+(?:_|-|\\\.))\[", pattern):
        letters = " and 26 letters and digits" if pattern.endswith("]{26}$") else "…"
        return f"it should be {begins['kind'].replace(chr(92), '')}{letters}"
    described = str(schema.get("description", "")).partition(". ")[0].rstrip(".")
    wanted = f": {described[0].lower()}{described[1:]}" if described else ""
    return f"it does not have the right form{wanted}"


def _schema_at(parts: Sequence[str], operation: AnyOperation | None) -> Mapping[str, Any]:
    """Returns what the operation declares of a field, as JSON Schema says it; empty if that is nothing."""
    if operation is None or not parts:
        return {}
    models: dict[str, type[BaseModel]] = {"path": operation.parameters, "query": operation.query}
    if isinstance(operation.body, Json):
        models["body"] = operation.body.model
    if parts[0] not in models:
        return {}
    whole = _schema(models[parts[0]])
    found: Mapping[str, Any] = whole
    for part in parts[1:]:
        inner = {**found.get("properties", {})}.get(part) or found.get("items") or {}
        found = _merged(inner, whole)
    return found


@lru_cache(maxsize=256)
def _schema(model: type[BaseModel]) -> Mapping[str, Any]:
    return model.model_json_schema()


def _merged(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a field together with what it refers to: `X | None` is said as X or nothing."""
    merged: dict[str, Any] = {}
    for one in _alternatives(schema, whole):
        for name, value in one.items():
            merged.setdefault(name, value)
    return merged


def _alternatives(schema: Mapping[str, Any], whole: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield schema
    for one in schema.get("anyOf", ()):
        yield from _alternatives(one, whole)
    if isinstance(where := schema.get("$ref"), str):
        yield from _alternatives(whole.get("$defs", {}).get(where.rpartition("/")[2], {}), whole)


log = logging.getLogger(__name__)
PROBLEM_JSON = "application/problem+json"
RETRY_AFTER_S = "1"
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
    409: "The present state does not allow this, or a word of the request fits several things.",
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


def document(
    error: SandboxerError, request_id: str, place: Mapping[str, str] | None = None
) -> dict[str, object]:
    """Returns the problem as it is sent. Facts that would shadow a member of the document are left out.

    `place` is what the path of the request names.
    """
    status = status_of(error)
    facts = dict(error.facts)
    hint = facts.pop("hint", None)
    if hint is None and isinstance(error, errors.NotFound) and (where := LISTS.get(str(facts.get("what")))):
        hint = f"See what there is: {where}."
    if isinstance(error, Broken):
        # Internal errors are logged and never shown to the caller.
        facts, detail = {}, "Something broke on our side."
    else:
        detail = str(error)
    step = errors.filled(str(hint), place or {}) if hint else error.what_next(**place or {})
    base = _members(status, error.code, detail, step, request_id)
    extra = {name: _plain(value) for name, value in facts.items() if name not in base and value is not None}
    return {**base, **extra}


def response(
    error: SandboxerError,
    request_id: str,
    extra_headers: Mapping[str, str] | None = None,
    place: Mapping[str, str] | None = None,
) -> Response:
    status = status_of(error)
    headers = dict(extra_headers or {})
    if isinstance(error, Unauthenticated):
        headers["www-authenticate"] = 'Bearer realm="sandboxer", error="invalid_request"'
    if status == 503:
        headers["retry-after"] = RETRY_AFTER_S
    if status == 429:
        headers["retry-after"] = str(error.facts.get("retry_after_s", RETRY_AFTER_S))
    return _render(document(error, request_id, place), headers)


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
    found = matched(request.scope)
    place = None if found is None else found.names
    return response(error, request_id, request.scope.get(ANSWER_HEADERS), place)


async def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, SandboxerError):
        # The framework wraps the error that reading the body raised.
        return await on_sandboxer_error(request, error.__cause__)
    if error.status_code == 400 and error.__cause__ is not None:
        return response(unreadable(error.__cause__), request_id_of(request.scope))
    detail = error.detail if isinstance(error.detail, str) else "The request was refused."
    return framework_response(error.status_code, detail, request_id_of(request.scope), error.headers)


async def on_invalid_upgrade(websocket: WebSocket, error: Exception) -> None:
    assert isinstance(error, WebSocketRequestValidationError)
    await websocket.send_denial_response(
        response(invalid(error.errors(), None), request_id_of(websocket.scope))
    )


async def on_invalid_request(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    operation = operation_of(request.scope)
    return response(invalid(error.errors(), operation, error.body), request_id_of(request.scope))


def request_id_of(scope: Scope) -> str:
    return str(scope.get(REQUEST_ID, "req_unknown"))


class TooSlow(Exception):
    """The body did not arrive in time."""


def too_slow(scope: Scope) -> Response:
    """Returns the refusal of a body that came too slowly. The rest of it is not needed any more."""
    headers = {"connection": "close"}
    return framework_response(408, "The body came too slowly.", request_id_of(scope), headers)


async def on_too_slow(request: Request, error: Exception) -> Response:
    return too_slow(request.scope)


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
    said: list[Any] = [operation.parameters, operation.query]
    said += [operation.body.model] if isinstance(operation.body, Json) else []
    # What a request names may not be there, or be several things.
    naming = (404, 409) if any(map(names_in, said)) else ()
    refused = _responses(*_BY_ACCESS.get(operation.access, _SIGNED), *operation.failures, *naming)
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
            types = [one for one in (answer.media_type, answer.other_media_type) if one is not None]
            content = {one: {"schema": {"type": kind}} for one in types}
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
