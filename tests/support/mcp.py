"""The official client of MCP, connected to a platform."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2 as httpx
from mcp.client.streamable_http import streamable_http_client

from mcp import Client
from sandboxer.sdk.sync.client import Sandboxer
from tests.support.platforms import Up

# The revision before the present one begins with `initialize`; the present one with `server/discover`.
ERAS = ("legacy", "auto")


@asynccontextmanager
async def connected(
    up: Up, token: str | None = None, *, era: str = "auto", tools: str = "", auth: Any = None
) -> AsyncIterator[Client]:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, auth=auth, timeout=60) as web:
        where = f"{up.url}/mcp" + (f"?tools={tools}" if tools else "")
        async with Client(streamable_http_client(where, http_client=web), mode=era) as client:
            yield client


def token_of(up: Up, account: str) -> str:
    """Opens an account and returns a bearer token of it."""
    with Sandboxer(owner_file=up.owner_file, url=up.url) as owner:
        owner.operator.create_account(id=account, reason="a test")
        key = owner.keys.create("mcp", account)
        return owner.keys.issue_bearer(key.public_key).bearer_token
