"""`sandboxer mcp`: the same tools by stdin and stdout, started as a host starts them."""

from __future__ import annotations

import asyncio
import json
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from mcp import Client, StdioServerParameters
from sandboxer.edges.mcp.hosts import HOSTS, spoken_to, started
from tests.support.mcp import ERAS
from tests.support.platforms import Up

PROGRAM = ("-m", "sandboxer.edges.cli.main", "mcp")


@asynccontextmanager
async def host(up: Up, *words: str, era: str = "auto") -> AsyncIterator[Client]:
    server = StdioServerParameters(
        command=sys.executable, args=[*PROGRAM, *words], env={**up.environment, "PYTHONPATH": "src"}
    )
    async with Client(server, mode=era) as client:
        yield client


@pytest.mark.parametrize("era", ERAS)
async def test_a_host_starts_it_and_runs_a_command(up: Up, era: str) -> None:
    async with host(up, "--tools", "core", era=era) as client:
        assert len((await client.list_tools()).tools) == 12
        made = await client.call_tool("createSandbox", {})
        where = {"sandbox_id": made.structured_content["id"]}
        ran = await client.call_tool("runCommand", {**where, "command": "echo hi"})
        assert ran.structured_content["stdout"] == "hi\n"
        assert not (await client.call_tool("destroySandbox", where)).is_error


async def test_what_the_platform_refuses_is_told_to_the_model(up: Up) -> None:
    async with host(up) as client:
        result = await client.call_tool("getSandbox", {"sandbox_id": "nobodys"})
        assert result.is_error
        assert result.structured_content["code"] == "not_found"


def test_hosts_are_told_to_start_it_in_their_own_words() -> None:
    words, where = ["mcp", "--tools", "core"], {"SANDBOXER_URL": "https://a.example"}
    for one in HOSTS:
        text = started(one, "/usr/bin/sandboxer", words, where)
        if one == "codex":
            server = tomllib.loads(text)["mcp_servers"]["sandboxer"]
        else:
            server = json.loads(text)["servers" if one == "vscode" else "mcpServers"]["sandboxer"]
        assert (server["command"], server["args"]) == ("/usr/bin/sandboxer", words)
        assert server["env"] == where
    assert "url" in spoken_to("cursor", "https://a.example/mcp", "SANDBOXER_API_KEY")


async def test_a_host_finds_the_platform_that_the_shell_had(up: Up) -> None:
    # A host starts programs with an environment of its own.
    printed = await asyncio.create_subprocess_exec(
        *(sys.executable, *PROGRAM, "--config", "claude", "--tools", "core"),
        env={**up.environment, "PYTHONPATH": "src"},
        stdout=asyncio.subprocess.PIPE,
    )
    config = json.loads((await printed.communicate())[0])["mcpServers"]["sandboxer"]
    assert config["env"] == {"SANDBOXER_CREDENTIALS": str(up.owner_file), "SANDBOXER_URL": up.url}
    server = StdioServerParameters(
        command=sys.executable,
        args=[*PROGRAM[:2], *config["args"]],
        env={**config["env"], "PYTHONPATH": "src"},
    )
    async with Client(server) as client:
        assert not (await client.call_tool("listSandboxes", {})).is_error
