"""The front page: what this is, whether it is well, and how to begin. People get a page, agents a text,
programs the OpenAPI document.

The page is whole in itself: no script, nothing from elsewhere, and its one style is allowed by its hash.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from fastapi.openapi.utils import get_openapi
from pydantic.json_schema import models_json_schema
from starlette.responses import Response

from sandboxer import __version__
from sandboxer.edges.http.binding import Asked, OperationRoute, bind
from sandboxer.edges.http.envelope import PAGE_POLICY
from sandboxer.edges.http.matcher import Binding, Routes
from sandboxer.edges.http.routes.discovery import llms_text
from sandboxer.edges.http.routes.platform import look
from sandboxer.wire.files import FileEvent, WatchReady
from sandboxer.wire.operations import platform as operations
from sandboxer.wire.operations.declaration import Access, AnyOperation
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

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #fff; --soft: #f2f4f7; --line: #d5dae1; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --paper: #15181c; --soft: #1f242b; --line: #343b45; }
}
body { font: 16px/1.55 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 46rem; margin: 3rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.9rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
pre { background: var(--soft); border: 1px solid var(--line); border-radius: 6px; padding: .8rem 1rem;
  overflow-x: auto; font: 14px/1.5 ui-monospace, monospace; margin: .4rem 0; }
.state { display: inline-block; border: 1px solid; border-radius: 1rem; padding: .05rem .7rem;
  font-size: .9rem; }
.ok { color: #1a7f4b; } .degraded { color: #b3541e; } a { color: inherit; } p { margin: .5rem 0; }
"""
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; frame-ancestors 'none'; base-uri 'none';"
    " form-action 'none'"
)


async def front_page(asked: Asked) -> Response:
    if "text/html" not in asked.request.headers.get("accept", ""):
        text = await llms_text(asked)
        text.headers["vary"] = "accept"
        return text
    status = (await look(asked.platform)).status
    page = _page(asked.platform.settings.url, status)
    asked.request.scope[PAGE_POLICY] = _POLICY.encode()
    return Response(page, media_type="text/html; charset=utf-8", headers={"vary": "accept"})


def _page(url: str, status: str) -> str:
    words = {"ok": "healthy"}.get(status, status)
    shown = "".join(
        f"<h2>{escape(title)}</h2><pre>{escape(code)}</pre>"
        for title, code in (
            (
                "With curl",
                f"export KEY=sk_…   # from: sandboxer key bearer PUBLIC_KEY\n"
                f'curl -H "Authorization: Bearer $KEY" -X POST {url}/v1/sandboxes\n'
                f'curl -H "Authorization: Bearer $KEY" {url}/v1/sandboxes',
            ),
            (
                "On the command line",
                f"pip install sandboxer\nexport SANDBOXER_URL={url} SANDBOXER_API_KEY=sk_…\n"
                "sandboxer create --name dev --network packages\nsandboxer exec dev -- pip install requests",
            ),
            (
                "In Python",
                "from sandboxer.sdk import Sandboxer\n\n"
                f'with Sandboxer(url="{url}", api_key="sk_…") as client:\n'
                '    sandbox = client.create(network="packages")\n'
                '    print(sandbox.exec("echo hello").stdout)',
            ),
        )
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>sandboxer</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}</style></head><body><h1>sandboxer</h1>"
        "<p>Walled computers for agents: create one, run anything in it, snapshot and fork it, give it an"
        " address.</p>"
        f'<p><span class="state {"ok" if status == "ok" else "degraded"}">{escape(words)}</span>'
        f" at <code>{escape(url)}</code></p>{shown}"
        '<h2>Read on</h2><p><a href="/llms.txt">All operations, a line each</a> ·'
        ' <a href="/openapi.json">OpenAPI</a> · <a href="/health">health</a> ·'
        ' <a href="/v1/capabilities">capabilities</a> · <a href="/v1/pricing">pricing</a></p></body></html>'
    )


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


async def show_document(asked: Asked) -> Response:
    state = asked.request.app.state
    if state.document is None:
        # Once, for all who ask meanwhile, and beside the loop: it takes seconds, and anybody may ask.
        state.document = asyncio.ensure_future(asyncio.to_thread(_document, state.routes))
    building: asyncio.Future[bytes] = state.document
    try:
        document = await asyncio.shield(building)
    except Exception:
        # The next one to ask tries again.
        if state.document is building:
            state.document = None
        raise
    return Response(document, media_type="application/json")


def _document(routes: Sequence[Routes]) -> bytes:
    return json.dumps(build_document(one for each in routes for one in each.bindings)).encode()


BINDINGS = (bind(operations.SHOW_FRONT_PAGE, front_page), bind(operations.GET_OPENAPI, show_document))
