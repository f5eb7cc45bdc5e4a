"""The binding of `/mcp`: one server for all callers, which the first request starts.

Clients of the present revision send requests that stand alone; those of earlier ones begin with `initialize`
and may keep a session, which is theirs alone. A stranger may look around, ask what anybody may ask, and buy;
for anything else it is told how to become known.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from sandboxer.edges.http.authentication import CALLER, MAX_BODY, STRANGER, replayed
from sandboxer.edges.http.binding import Asked, bind
from sandboxer.edges.mcp.inside import HERE, InsideLine, called_by
from sandboxer.edges.mcp.server import Context, ToolServer
from sandboxer.kernel.errors import Forbidden, Unauthenticated
from sandboxer.sdk.calls.keys import issue_bearer
from sandboxer.sdk.credentials import NOBODY, Credentials
from sandboxer.sdk.errors import SdkError
from sandboxer.sdk.tools import OFFERS, Offer, ToolResult, said, tool_named
from sandboxer.wire import mcp as operations
from sandboxer.wiring import Platform

log = logging.getLogger(__name__)
# Of all callers, and of one; whoever has more is served without them, and cannot give a call up.
MAX_SESSIONS, MAX_OF_ONE = 1000, 32
_SESSION = "mcp-session-id"
# What a stranger may ask besides tools that are open to it.
_OPEN = frozenset(
    {
        "initialize",
        "notifications/initialized",
        "notifications/cancelled",
        "ping",
        "server/discover",
        "tools/list",
        "prompts/list",
        "prompts/get",
        "resources/list",
        "resources/templates/list",
        "logging/setLevel",
    }
)


class McpServer:
    """Serves MCP for one platform, until that closes."""

    def __init__(self, platform: Platform) -> None:
        tools = ToolServer(
            InsideLine(Credentials(NOBODY, "", HERE)),
            offer_of=_offer,
            within=lambda one: called_by(_request(one).scope),
            finish=_with_token if platform.settings.bearer_tokens else None,
        )
        words: dict[str, Any] = {"app": tools.server, "max_request_body_size": MAX_BODY}
        self._sessions = StreamableHTTPSessionManager(**words, max_sessions=MAX_SESSIONS)
        self._alone = StreamableHTTPSessionManager(**words, stateless=True)
        self._started = asyncio.Event()
        self.is_broken = False
        platform.edge_tasks.start(self._run(), name="MCP")

    async def _run(self) -> None:
        try:
            async with self._sessions.run(), self._alone.run():
                self._started.set()
                await asyncio.Future()
        except Exception:
            # The platform goes on; the next request starts another one.
            log.exception("the MCP server broke")
            self.is_broken = True

    def may_keep(self, user: AuthenticatedUser) -> bool:
        """Says whether one more session of this caller is kept."""
        owners = self._sessions._session_owners.values()
        of_one = sum(one["client_id"] == user.access_token.client_id for one in owners)
        return of_one < MAX_OF_ONE and len(owners) < MAX_SESSIONS

    async def serve(self, scope: Scope, receive: Receive, send: Send, *, keeps: bool) -> None:
        await self._started.wait()
        await (self._sessions if keeps else self._alone).handle_request(scope, receive, send)


class _Served(Response):
    """What the MCP server answers."""

    def __init__(self, server: McpServer, body: bytes, *, keeps: bool) -> None:
        self._server, self._sent, self._keeps = server, body, keeps
        self.background = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._server.serve(scope, replayed(self._sent, receive), send, keeps=self._keeps)


async def serve(asked: Asked) -> Response:
    request = asked.request
    _demand_origin(request)
    body = await request.body()
    asks = _said(body)
    server = _server(request)
    if STRANGER in request.scope:
        _demand_open(asked.platform, request, asks)
        if request.method != "POST":
            # A stranger has no session that could say anything by itself.
            return Response(status_code=405, headers={"allow": "POST"})
        return _Served(server, body, keeps=False)
    request.scope["user"] = user = _user(request.scope)
    is_known = request.method != "POST" or _SESSION in request.headers
    keeps = is_known or (asks.get("method") == "initialize" and server.may_keep(user))
    return _Served(server, body, keeps=keeps)


async def _with_token(result: ToolResult) -> ToolResult:
    """A wallet's first purchase brings a key. A host of models signs nothing: it is given a token of that key
    besides, which it sends from then on.
    """
    key = (result.structured or {}).get("key") if result.settled is not None else None
    if not isinstance(key, dict) or result.structured is None:
        return result
    owner = Credentials(key["public_key"], key["secret_key"], HERE)
    try:
        made = await InsideLine(owner).send(issue_bearer(owner.public_key))
    except SdkError as error:
        # The key is paid for and shown once: whoever has it makes a token later (`sandboxer key bearer`).
        log.warning("no token of %s, which was just paid for: %s", owner.public_key, error)
        return result
    known = said({**result.structured, "key": {**key, "bearer_token": made.bearer_token}})
    return replace(known, settled=result.settled)


def _server(request: Request) -> McpServer:
    state = request.app.state
    found = getattr(state, "mcp", None)
    if found is None or found.is_broken:
        found = state.mcp = McpServer(state.platform)
    assert isinstance(found, McpServer)
    return found


def _request(context: Context) -> Request:
    assert isinstance(context.request, Request)
    return context.request


def _offer(context: Context) -> Offer:
    """`/mcp?tools=core` offers the dozen with which most can be done, `?tools=all` everything."""
    asked = _request(context).query_params.get("tools", "standard")
    return next((offer for offer in OFFERS if offer == asked), "standard")


def _user(scope: Scope) -> AuthenticatedUser:
    """Names the caller, whose session no other caller may use."""
    caller = scope[CALLER]
    return AuthenticatedUser(AccessToken(token="", client_id=caller.public_key, scopes=[]))


def _said(body: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(body) if body else {}
    except (ValueError, RecursionError):
        # The protocol has an answer of its own for that.
        return {}
    return said if isinstance(said, dict) else {}


def _demand_open(platform: Platform, request: Request, said: Mapping[str, Any]) -> None:
    """Raises Unauthenticated if strangers are not served what this asks for."""
    method = said.get("method")
    is_open = isinstance(method, str) and method in _OPEN
    is_looking = request.method != "POST" or "method" not in said or is_open
    # `/mcp?login=1` is for hosts that ask their user to sign in before anything else.
    if is_looking and "login" not in request.query_params:
        return
    params = said.get("params")
    name = params.get("name") if method == "tools/call" and isinstance(params, dict) else None
    if isinstance(name, str) and "login" not in request.query_params and _is_open(platform, name):
        return
    raise Unauthenticated(
        why="nobody is named who asks for this",
        reason="missing",
        hint="Send `Authorization: Bearer sk_…`, or call a tool that can be paid for.",
    )


def _is_open(platform: Platform, name: str) -> bool:
    try:
        tool = tool_named(name)
    except SdkError:
        # The server says that there is no such tool.
        return True
    return tool.is_public and not (tool.is_payable and not platform.settings.is_charged)


def _demand_origin(request: Request) -> None:
    """Raises Forbidden for a page of another site: nobody's browser shall speak to us for it."""
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Forbidden(why="pages of other sites may not speak to the MCP server")


BINDINGS = [
    bind(operations.POST, serve),
    bind(operations.GET, serve),
    bind(operations.DELETE, serve),
]
