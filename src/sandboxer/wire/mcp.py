"""What hosts of models ask for at `/mcp`, and how they are let in.

The operations are declared as all others are, so that the same authentication, limits and accounting hold.
They are in a table of their own: MCP has its words for what is asked there, and clients, documents and verbs
of ours are not made of them.
"""

from sandboxer.wire.operations.declaration import ANY_KEY, Access, AnyOperation, Events, Group, RateClass

PATH = "/mcp"
_MCP = Group(noun="mcp", path=PATH, needs=ANY_KEY, access=Access.EITHER, rate=RateClass.PUBLIC)
_ANSWER = Events(words="JSON-RPC, as one document or as server-sent events.")
POST = _MCP.operation("mcpPost", "POST", "Ask the MCP server", _ANSWER)
GET = _MCP.operation("mcpGet", "GET", "Hear what the MCP server says by itself (older clients)", _ANSWER)
DELETE = _MCP.operation("mcpDelete", "DELETE", "End a session with the MCP server (older clients)", _ANSWER)
OPERATIONS: tuple[AnyOperation, ...] = (POST, GET, DELETE)
