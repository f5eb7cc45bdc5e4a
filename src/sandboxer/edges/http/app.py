"""Assembles the app: the operations that it serves, its layers, and its OpenAPI document."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError, WebSocketRequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from pydantic.warnings import UnsupportedFieldAttributeWarning
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.responses import Response

from sandboxer import __version__
from sandboxer.edges.e2b import code as e2b_code
from sandboxer.edges.e2b import disks as e2b_disks
from sandboxer.edges.e2b import files as e2b_files
from sandboxer.edges.e2b import filesystem as e2b_filesystem
from sandboxer.edges.e2b import processes as e2b_processes
from sandboxer.edges.e2b import sandboxes as e2b_sandboxes
from sandboxer.edges.e2b import templates as e2b_templates
from sandboxer.edges.e2b import volumes as e2b_volumes
from sandboxer.edges.e2b.door import E2bDoor
from sandboxer.edges.http import problems
from sandboxer.edges.http.authentication import Authentication
from sandboxer.edges.http.binding import Asked, OperationRoute, bind
from sandboxer.edges.http.envelope import Envelope
from sandboxer.edges.http.matcher import Binding, Dispatch, Matcher, Matching
from sandboxer.edges.http.routes import (
    access,
    accounts,
    catalogue,
    discovery,
    disks,
    egress,
    events,
    front,
    images,
    keys,
    operators,
    platform,
    sandboxes,
)
from sandboxer.edges.http.routes.payments import gift_cards, invoices, payments
from sandboxer.edges.http.routes.work import execute, files, processes, services, sessions
from sandboxer.kernel.errors import SandboxerError
from sandboxer.store.idempotency import Unsettled
from sandboxer.wire.files import FileEvent, WatchReady
from sandboxer.wire.operations.declaration import Access, AnyOperation
from sandboxer.wire.operations.platform import GET_OPENAPI
from sandboxer.wire.processes import (
    ExecExit,
    ExecOutput,
    ExecStarted,
    Resize,
    TerminalExit,
    TerminalProblem,
    TerminalReady,
)
from sandboxer.wire.sandboxes import Event
from sandboxer.wire.words import Problem
from sandboxer.wiring import Platform

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

**Names**: where an id is asked for, in a path, a query or a body, a name of one's own (`dev`) or the
beginning of an id (`sbx_4c3`) does as well. What fits several is a 409 that lists them (`ambiguous`).

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
    Event,
    ExecStarted,
    ExecOutput,
    ExecExit,
    FileEvent,
    WatchReady,
    Resize,
    TerminalReady,
    TerminalExit,
    TerminalProblem,
)


def build_document(bindings: Iterable[Binding]) -> dict[str, Any]:
    routes = [binding.route for binding in bindings if isinstance(binding.route, OperationRoute)]
    document = get_openapi(
        title="sandboxer",
        version=__version__,
        openapi_version="3.1.0",
        description=DESCRIPTION,
        routes=[route.documented for route in routes],
    )
    _add_schemas(document)
    _add_security(document, [route.operation for route in routes])
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


# FastAPI suppresses this warning while it attaches its own metadata to a body's model; ours are built later.
warnings.filterwarnings("ignore", category=UnsupportedFieldAttributeWarning)


async def show_document(asked: Asked) -> Response:
    state = asked.request.app.state
    if state.document is None:
        state.document = json.dumps(build_document(state.bindings)).encode()
    return Response(state.document, media_type="application/json")


# In the order of the document.
BINDINGS = (
    *sandboxes.BINDINGS,
    *processes.BINDINGS,
    *execute.BINDINGS,
    *sessions.BINDINGS,
    *files.BINDINGS,
    *access.BINDINGS,
    *egress.BINDINGS,
    *events.BINDINGS,
    *platform.BINDINGS,
    *front.BINDINGS,
    *discovery.BINDINGS,
    *keys.BINDINGS,
    *payments.BINDINGS,
    *accounts.BINDINGS,
    *operators.BINDINGS,
    *invoices.BINDINGS,
    *gift_cards.BINDINGS,
    *catalogue.BINDINGS,
    *services.BINDINGS,
    *disks.BINDINGS,
    *images.BINDINGS,
    bind(GET_OPENAPI, show_document),
)

# For clients of E2B: not ours to document.
E2B_BINDINGS = (
    *e2b_sandboxes.BINDINGS,
    *e2b_disks.BINDINGS,
    *e2b_templates.BINDINGS,
    *e2b_volumes.BINDINGS,
    *e2b_processes.BINDINGS,
    *e2b_filesystem.BINDINGS,
    *e2b_files.BINDINGS,
    *e2b_code.BINDINGS,
)


def create_app(platform: Platform, bindings: Sequence[Binding] = BINDINGS) -> FastAPI:
    matcher = Matcher((*bindings, *E2B_BINDINGS))
    app = FastAPI(
        title="sandboxer",
        version=__version__,
        # Our own route serves the document, and there are no pages for people: nothing is unsigned but the
        # listed operations.
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            Middleware(E2bDoor, domain=platform.settings.proxy_domain),
            Middleware(Matching, matcher=matcher),
            Middleware(
                Envelope,
                metrics=platform.metrics,
                spans=platform.spans,
                is_logged=platform.settings.log_requests,
            ),
            Middleware(Authentication, platform=platform),
        ],
        exception_handlers={
            SandboxerError: problems.on_sandboxer_error,
            HTTPException: problems.on_http_exception,
            RequestValidationError: problems.on_invalid_request,
            problems.TooSlow: problems.on_too_slow,
        },
    )
    # Starlette accepts such handlers, although its types mention requests only.
    app.add_exception_handler(WebSocketRequestValidationError, problems.on_invalid_upgrade)
    platform.access.ports.waker.begin = partial(e2b_templates.begin_for_visitor, platform)
    app.state.platform = platform
    app.state.readiness = "ready"
    # Built when it is first asked for.
    app.state.document = None
    app.state.bindings = bindings
    app.state.unsettled = Unsettled()
    app.state.started_at = platform.clock.now()
    # The match made at the outermost layer decides, even if trying the routes in turn would find none.
    app.router.middleware_stack = Dispatch(app.router.app, matcher)
    return app
