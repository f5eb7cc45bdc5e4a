"""Bindings: programs that ask to act for an account, and the answer of somebody who may speak for it.

The program and the browser speak OAuth to `edges/mcp/oauth.py`; whoever answers signs, as for any other key.
"""

from __future__ import annotations

from datetime import timedelta

from sandboxer.accounts import delegation
from sandboxer.accounts.authority import parse_scopes, scopes_to_json
from sandboxer.accounts.clients import records
from sandboxer.edges.http.answers import from_record
from sandboxer.edges.http.binding import Asked, AskedPathBody, bind
from sandboxer.edges.http.demands import confirm, is_wallet, refuse_by_socket
from sandboxer.edges.http.disconnection import standing_of
from sandboxer.edges.http.requests import moment
from sandboxer.identity.sessions.tokens import session_token
from sandboxer.wire.keys import AllowClient, ClientRequest
from sandboxer.wire.operations import auth as operations

LASTS = timedelta(days=30)


async def show(asked: Asked[operations.ClientPath]) -> ClientRequest:
    return _shown(asked.platform.clients.by_code(asked.path.code))


async def allow(asked: AskedPathBody[operations.ClientPath, AllowClient]) -> ClientRequest:
    platform, who, body = asked.platform, asked.caller, asked.body
    request = platform.clients.by_code(asked.path.code)
    refuse_by_socket(who)
    if is_wallet(asked.request) or who.came_by_bearer:
        # The key would outlive the session or the token that allowed it.
        await confirm(asked.request, action="cut_key", resource=who.account)
    until = moment(body.expires_at, field="expires_at")
    wish = delegation.Cut(
        name=body.name or request.client.name,
        budget_sats=body.budget_sats,
        scopes=request.scopes if body.scopes is None else parse_scopes(body.scopes),
        slots=body.slots,
        expires_at=until or platform.clock.now() + LASTS,
    )
    await platform.authorities.of(who)
    standing = standing_of(platform, who, session_token(asked.request.scope["headers"]))
    platform.clients.answer(request, records.Consent(caller=who, wish=wish, standing=standing))
    return _shown(request)


async def refuse(asked: Asked[operations.ClientPath]) -> None:
    platform = asked.platform
    platform.clients.answer(platform.clients.by_code(asked.path.code), None)


def _shown(request: records.ClientRequest) -> ClientRequest:
    return from_record(
        ClientRequest,
        request,
        client_id=request.client.id,
        client_name=request.client.name,
        answered_at=request.redirect_uri,
        scopes=scopes_to_json(request.scopes),
    )


BINDINGS = (
    bind(operations.SHOW_CLIENT_REQUEST, show),
    bind(operations.ALLOW_CLIENT, allow),
    bind(operations.REFUSE_CLIENT, refuse),
)
