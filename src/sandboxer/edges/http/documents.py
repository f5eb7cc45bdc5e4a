"""Builds the OpenAPI 3.1 document: what the routes declare, plus problems, signatures and common headers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema

from sandboxer import __version__
from sandboxer.edges.http.binding import OperationRoute
from sandboxer.edges.http.matcher import Binding
from sandboxer.wire import files, processes, sandboxes
from sandboxer.wire.operations.declaration import Access, AnyOperation
from sandboxer.wire.words import Problem

DESCRIPTION = """\
Walled computers for agents. Every request but the few marked as public is signed with HMAC-SHA256.

**v2** (use it): `Authorization: Bearer <public key>`, `X-Timestamp` (unix seconds, ±300 s),
`X-Nonce` (16–128 of `[A-Za-z0-9_-]`, once), `X-Content-SHA256` (hex of the body),
`X-Signature` = lower-case hex HMAC over
`v2:{timestamp}:{nonce}:{METHOD}:{path with query}:{content sha256}`.

**v1** (for clients that exist): no nonce, no hash; `X-Signature` over
`{timestamp}:{METHOD}:{path with query}:{raw body}`; bodies up to 1 MiB.
It cannot tell a replay from an honest repeat; keys take v2 only unless made otherwise.

**Wallets** sign in instead: `POST /v1/auth/challenge`, sign its `message`, `POST /v1/auth/session`, then send
the token as `Authorization: Bearer v4.local.…`; or `SIGN-IN-WITH-X` (CAIP-122).

Requests are counted by key and by address: 429 says in `Retry-After` when to come back.

Errors are RFC 9457 problems with a stable `code`, whose `fault` it is and the `next_step`.
"""
_HEADER_SCHEMES = {
    "Timestamp": ("X-Timestamp", "Unix seconds."),
    "Nonce": ("X-Nonce", "16–128 of [A-Za-z0-9_-]; works once."),
    "ContentSha256": ("X-Content-SHA256", "Hex SHA-256 of the body."),
    "Signature": ("X-Signature", "Lower-case hex HMAC-SHA256."),
}
_SECURITY: list[dict[str, list[str]]] = [
    {"PublicKey": [], "Timestamp": [], "Nonce": [], "ContentSha256": [], "Signature": []},
    {"PublicKey": [], "Timestamp": [], "Signature": []},
    {"WalletSession": []},
    {"SignInWithX": []},
]
# Models of streams and terminals, which no route declares as its answer.
_STREAMED = (
    Problem,
    sandboxes.Event,
    processes.ExecStarted,
    processes.ExecOutput,
    processes.ExecExit,
    files.FileEvent,
    files.WatchReady,
    processes.Resize,
    processes.TerminalReady,
    processes.TerminalExit,
    processes.TerminalProblem,
)


def build(bindings: Iterable[Binding]) -> dict[str, Any]:
    routes = [route for binding in bindings for route in binding.routes()]
    document = get_openapi(
        title="sandboxer",
        version=__version__,
        openapi_version="3.1.0",
        description=DESCRIPTION,
        routes=routes,
    )
    _add_schemas(document)
    _add_security(document, [route.operation for route in routes if isinstance(route, OperationRoute)])
    for operation in _operations(document):
        _add_request_id(operation)
    return document


def _add_schemas(document: dict[str, Any]) -> None:
    _, found = models_json_schema(
        [(model, "serialization") for model in _STREAMED], ref_template="#/components/schemas/{model}"
    )
    schemas = document["components"].setdefault("schemas", {})
    for name, schema in found["$defs"].items():
        schemas.setdefault(name, schema)


def _add_security(document: dict[str, Any], operations: Sequence[AnyOperation]) -> None:
    schemes: dict[str, Any] = {
        "PublicKey": {"type": "http", "scheme": "bearer", "description": "The public key, sbx-pk-…."}
    }
    schemes["WalletSession"] = {
        "type": "http",
        "scheme": "bearer",
        "bearerFormat": "PASETO v4.local",
        "description": "The token of POST /v1/auth/session or POST /v1/auth/siwx; nothing else is signed.",
    }
    schemes["SignInWithX"] = {
        "type": "apiKey",
        "in": "header",
        "name": "SIGN-IN-WITH-X",
        "description": "Base64 of a signed CAIP-122 message as JSON; works for one request.",
    }
    for name, (header, description) in _HEADER_SCHEMES.items():
        schemes[name] = {"type": "apiKey", "in": "header", "name": header, "description": description}
    document["components"]["securitySchemes"] = schemes
    document["security"] = _SECURITY
    unsigned = {one.id for one in operations if one.access in (Access.UNSIGNED, Access.LOOPBACK)}
    for_either = {one.id for one in operations if one.access is Access.EITHER}
    for operation in _operations(document):
        if operation["operationId"] in unsigned:
            operation["security"] = []
        elif operation["operationId"] in for_either:
            operation["security"] = [{}, *_SECURITY]


def _operations(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [operation for item in document["paths"].values() for operation in item.values()]


def _add_request_id(operation: dict[str, Any]) -> None:
    for answer in operation["responses"].values():
        answer.setdefault("headers", {})["x-request-id"] = {
            "description": "Id of this request, for questions to the operator.",
            "schema": {"type": "string"},
        }
