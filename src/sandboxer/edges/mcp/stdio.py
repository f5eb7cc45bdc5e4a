"""The MCP server of one user, on stdin and stdout: a host starts it, and ends it by closing its stdin."""

from __future__ import annotations

from mcp.server.stdio import stdio_server

from sandboxer.edges.mcp.server import ToolServer
from sandboxer.sdk.aio.line import AsyncLine
from sandboxer.sdk.credentials import Credentials
from sandboxer.sdk.tools import Offer


async def serve(credentials: Credentials, offer: Offer) -> None:
    """Serves until stdin ends. Sandboxes go on."""
    line = AsyncLine(credentials)
    server = ToolServer(line, offer_of=lambda _: offer).server
    try:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        await line.close()
