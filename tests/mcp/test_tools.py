"""Tools over HTTP, by the protocol's official client, in both eras of the protocol."""

from __future__ import annotations

import pytest

from tests.support.mcp import ERAS, connected
from tests.support.platforms import Up

pytestmark = pytest.mark.parametrize("era", ERAS)


async def test_the_era_is_the_one_that_was_asked_for(up: Up, token: str, era: str) -> None:
    async with connected(up, token, era=era) as client:
        assert client.protocol_version == ("2025-11-25" if era == "legacy" else "2026-07-28")
        assert client.server_info is not None
        assert client.server_info.name == "sandboxer"


async def test_a_sandbox_is_made_used_and_ended(up: Up, token: str, era: str) -> None:
    async with connected(up, token, era=era) as client:
        made = await client.call_tool("createSandbox", {})
        assert not made.is_error, made.content
        where = {"sandbox_id": made.structured_content["id"]}
        await client.call_tool("writeFile", {**where, "path": "/f", "content": "héllo"})
        read = await client.call_tool("readFile", {**where, "path": "/f"})
        assert read.content[0].text == "héllo"
        ran = await client.call_tool("runCommand", {**where, "command": "echo hi; exit 3"})
        assert (ran.structured_content["stdout"], ran.structured_content["exit_code"]) == ("hi\n", 3)
        gone = await client.call_tool("destroySandbox", where)
        assert gone.structured_content["state"] == "destroyed"
