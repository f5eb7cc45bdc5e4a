"""The words of OAuth 2.1, for hosts of models whose user has a browser: what protects `/mcp`, how a client is
known (a document at its address, or by describing itself), the page that waits, and the token.

Nobody types a key into the page. It shows a code, and whoever holds a key allows it from elsewhere
(`sandboxer key allow CODE`), signed as everything else is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import parse_qsl, urlencode

from starlette.responses import JSONResponse, RedirectResponse, Response

from sandboxer.accounts.authority import scopes_to_json, usual_scopes
from sandboxer.accounts.clients.records import ClientRequest
from sandboxer.accounts.clients.use_cases import Asked as AskedClient
from sandboxer.edges.http.binding import Asked, AskedQuery, bind
from sandboxer.edges.http.envelope import PAGE_POLICY
from sandboxer.edges.mcp import pages
from sandboxer.kernel.errors import InvalidRequest, NotAvailable, SandboxerError, Unauthenticated
from sandboxer.wire import mcp as operations
from sandboxer.wire.operations.declaration import Scope
from sandboxer.wiring import Platform

_NOT_KEPT = {"cache-control": "no-store"}


async def about_resource(asked: Asked) -> Response:
    _demand_tokens(asked.platform)
    url = asked.platform.settings.url.rstrip("/")
    return JSONResponse(
        {
            "resource": url + operations.PATH,
            "authorization_servers": [url],
            "bearer_methods_supported": ["header"],
            "scopes_supported": scopes_to_json(usual_scopes(0)),
            "resource_name": "sandboxer",
        }
    )


async def about_server(asked: Asked) -> Response:
    _demand_tokens(asked.platform)
    url = asked.platform.settings.url.rstrip("/")
    return JSONResponse(
        {
            "issuer": url,
            "authorization_endpoint": f"{url}{operations.OAUTH}/authorize",
            "token_endpoint": f"{url}{operations.OAUTH}/token",
            "registration_endpoint": f"{url}{operations.OAUTH}/register",
            "revocation_endpoint": f"{url}{operations.OAUTH}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "client_id_metadata_document_supported": True,
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": sorted(scope.value for scope in Scope),
        }
    )


async def register(asked: Asked) -> Response:
    _demand_tokens(asked.platform)
    try:
        document = json.loads(await asked.request.body())
    except (ValueError, RecursionError):
        document = None
    try:
        client = asked.platform.clients.register(document)
    except InvalidRequest as error:
        return _refused(error)
    said = {
        "client_id": client.id,
        "client_name": client.name,
        "redirect_uris": list(client.redirect_uris),
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code"],
        "response_types": ["code"],
    }
    return JSONResponse(said, 201, _NOT_KEPT)


async def authorize(asked: AskedQuery[operations.AuthorizeQuery]) -> Response:
    _demand_tokens(asked.platform)
    said = AskedClient(**asked.query.model_dump())
    clients = asked.platform.clients
    # Until the client is known to be answered there, a mistake is told to the browser and goes no further.
    client = await clients.client(said.client_id, said.redirect_uri)
    try:
        request = clients.ask(client, said)
    except InvalidRequest as error:
        words = {"error": str(error.facts.get("reason", "invalid_request")), "error_description": str(error)}
        return _sent_back(asked.platform, said.redirect_uri, said.state, words)
    return RedirectResponse(f"{operations.OAUTH}/requests/{request.ticket}", 303, _NOT_KEPT)


async def wait(asked: Asked[operations.TicketPath]) -> Response:
    request, code, is_refused = asked.platform.clients.outcome(asked.path.ticket)
    if code is not None or is_refused:
        words = {"error": "access_denied"} if code is None else {"code": code}
        return _sent_back(asked.platform, request.redirect_uri, request.state, words)
    asked.request.scope[PAGE_POLICY] = pages.POLICY.encode()
    return Response(_page(asked.platform, request), media_type="text/html; charset=utf-8")


async def token(asked: Asked) -> Response:
    form = await _form(asked)
    try:
        if form.get("grant_type") != "authorization_code":
            return _told("unsupported_grant_type", "only authorization_code is taken")
        given = await asked.platform.clients.exchange(
            code=form.get("code", ""),
            client_id=form.get("client_id", ""),
            redirect_uri=form.get("redirect_uri", ""),
            verifier=form.get("code_verifier", ""),
            resource=form.get("resource"),
        )
    except InvalidRequest as error:
        return _refused(error)
    except SandboxerError as error:
        # What was allowed cannot be given: the budget is not there, the slots are not, who allowed it is not.
        return _told("invalid_grant", f"{error} {error.next_step}")
    said: dict[str, Any] = {
        "access_token": given.access_token,
        "token_type": "Bearer",
        "scope": " ".join(scopes_to_json(given.scopes)),
    }
    if given.expires_at is not None:
        said["expires_in"] = int((given.expires_at - asked.platform.clock.now()).total_seconds())
    return JSONResponse(said, 200, _NOT_KEPT)


async def revoke(asked: Asked) -> Response:
    try:
        await asked.platform.clients.end((await _form(asked)).get("token", ""))
    except Unauthenticated:
        # An unknown token is as good as an ended one (RFC 7009).
        return Response(status_code=200)
    return Response(status_code=200)


def _demand_tokens(platform: Platform) -> None:
    if not platform.settings.bearer_tokens:
        raise NotAvailable(what="OAuth", why="this platform takes no bearer tokens")


async def _form(asked: Asked) -> Mapping[str, str]:
    body = await asked.request.body()
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))


def _sent_back(platform: Platform, uri: str, state: str | None, words: Mapping[str, str]) -> Response:
    said = {**words, "iss": platform.settings.url.rstrip("/"), **({} if state is None else {"state": state})}
    joint = "&" if "?" in uri else "?"
    return RedirectResponse(f"{uri}{joint}{urlencode(said)}", 302, _NOT_KEPT)


def _refused(error: InvalidRequest) -> Response:
    return _told(str(error.facts.get("reason", "invalid_request")), str(error))


def _told(error: str, words: str) -> Response:
    return JSONResponse({"error": error, "error_description": words}, 400, _NOT_KEPT)


def _page(platform: Platform, request: ClientRequest) -> str:
    return pages.waiting(
        code=request.code,
        name=escape(request.client.name),
        answered_at=escape(request.redirect_uri),
        scopes=[escape(scope) for scope in scopes_to_json(request.scopes)],
        url=escape(platform.settings.url),
    )


BINDINGS = (
    bind(operations.ABOUT_RESOURCE, about_resource),
    bind(operations.ABOUT_MCP, about_resource),
    bind(operations.ABOUT_SERVER, about_server),
    bind(operations.REGISTER, register),
    bind(operations.AUTHORIZE, authorize),
    bind(operations.WAIT, wait),
    bind(operations.TOKEN, token),
    bind(operations.REVOKE, revoke),
)
