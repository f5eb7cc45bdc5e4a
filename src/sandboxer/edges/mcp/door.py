"""Tells whoever is refused at `/mcp` where to become known (RFC 9728), whichever layer refused it."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandboxer.accounts.authority import scopes_to_json, usual_scopes
from sandboxer.settings import Settings
from sandboxer.wire.mcp import PATH, RESOURCE


class McpDoor:
    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._is_open = settings.bearer_tokens
        scopes = " ".join(scopes_to_json(usual_scopes(0)))
        metadata = settings.url.rstrip("/") + RESOURCE + PATH
        self._challenge = f'Bearer resource_metadata="{metadata}", scope="{scopes}"'.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] != PATH or not self._is_open:
            await self._app(scope, receive, send)
            return

        async def challenged(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 401:
                headers = [*message["headers"], (b"www-authenticate", self._challenge)]
                message = {**message, "headers": headers}
            await send(message)

        await self._app(scope, receive, challenged)
