"""What hosts of models ask for at `/mcp`, and how they are let in (OAuth 2.1).

The operations are declared as all others are, so that the same authentication, limits and accounting hold.
They are in a table of their own: MCP and OAuth have their words for what is asked there, and clients,
documents and verbs of ours are not made of them.
"""

from dataclasses import replace
from typing import Annotated

from pydantic import Field

from sandboxer.wire.operations.declaration import (
    ANY_KEY,
    NEVER_DELEGATED,
    Access,
    AnyOperation,
    Bytes,
    Events,
    Group,
    Nothing,
    Parameters,
    RateClass,
)

PATH = "/mcp"
# Where clients look for what protects a resource, and for who gives tokens.
RESOURCE = "/.well-known/oauth-protected-resource"
SERVER = "/.well-known/oauth-authorization-server"
OAUTH = "/oauth"


class TicketPath(Parameters):
    ticket: Annotated[str, Field(max_length=64)]


Word = Annotated[str | None, Field(max_length=4096)]


class AuthorizeQuery(Parameters):
    client_id: Annotated[str, Field(max_length=8192)]
    redirect_uri: Annotated[str, Field(max_length=4096)]
    response_type: Word = None
    code_challenge: Word = None
    code_challenge_method: Word = None
    state: Word = None
    scope: Word = None
    resource: Word = None


_MCP = Group(noun="mcp", path=PATH, needs=ANY_KEY, access=Access.EITHER, rate=RateClass.PUBLIC)
_ANSWER = Events(words="JSON-RPC, as one document or as server-sent events.")
POST = _MCP.operation("mcpPost", "POST", "Ask the MCP server", _ANSWER)
GET = _MCP.operation("mcpGet", "GET", "Hear what the MCP server says by itself (older clients)", _ANSWER)
DELETE = _MCP.operation("mcpDelete", "DELETE", "End a session with the MCP server (older clients)", _ANSWER)

_OPEN = Group(noun="oauth", needs=NEVER_DELEGATED, access=Access.UNSIGNED, rate=RateClass.PUBLIC)
_GUARDED = replace(_OPEN, rate=RateClass.AUTH)
_JSON = Bytes(media_type="application/json", words="As RFC 8414, 9728, 7591 and 6749 say.", is_text=True)
_PAGE = Bytes(media_type="text/html", words="A page that says what to do.", is_text=True)
ABOUT_RESOURCE = _OPEN.operation("oauthResource", f"GET {RESOURCE}", "Say who gives tokens for this", _JSON)
ABOUT_MCP = _OPEN.operation(
    "oauthMcpResource", f"GET {RESOURCE}{PATH}", "Say who gives tokens for /mcp", _JSON
)
ABOUT_SERVER = _OPEN.operation("oauthServer", f"GET {SERVER}", "Say how tokens are given", _JSON)
REGISTER = _GUARDED.operation("oauthRegister", f"POST {OAUTH}/register", "Describe a client", _JSON)
AUTHORIZE = _GUARDED.operation(
    "oauthAuthorize", f"GET {OAUTH}/authorize", "Ask to act for somebody", _PAGE, query=AuthorizeQuery
)
WAIT = _OPEN.below(f"{OAUTH}/requests/{{ticket}}", TicketPath).operation(
    "oauthWait", "GET", "Wait for the answer of somebody", _PAGE
)
TOKEN = _GUARDED.operation("oauthToken", f"POST {OAUTH}/token", "Fetch a token", _JSON)
REVOKE = _GUARDED.operation("oauthRevoke", f"POST {OAUTH}/revoke", "End a token", Nothing(status=200))
OPERATIONS: tuple[AnyOperation, ...] = (
    POST,
    GET,
    DELETE,
    ABOUT_RESOURCE,
    ABOUT_MCP,
    ABOUT_SERVER,
    REGISTER,
    AUTHORIZE,
    WAIT,
    TOKEN,
    REVOKE,
)
