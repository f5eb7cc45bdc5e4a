"""Sandboxes as tools of the OpenAI Agents SDK (`sandboxer[openai-agents]`).

async with AsyncSandboxer() as client:
    agent = Agent(name="worker", tools=sandbox_tools(client))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agents.tool_context import ToolContext

from agents import FunctionTool
from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.tools import Offer, Tool, tools


def sandbox_tools(client: AsyncSandboxer, what: Offer | Sequence[str] = "core") -> list[FunctionTool]:
    """Returns the tools of an offer, or those that are named. What is refused is said to the model."""
    return [_made(client, tool) for tool in tools(what)]


def _made(client: AsyncSandboxer, tool: Tool) -> FunctionTool:
    async def run(_: ToolContext[Any], arguments: str) -> str:
        try:
            given = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            return f"The arguments of {tool.name} are no JSON. Call it again."
        return (await client.tools.run(tool.name, given)).text

    return FunctionTool(
        name=tool.name,
        description=tool.description,
        params_json_schema=dict(tool.schema),
        on_invoke_tool=run,
        # Strict schemas know no argument that may be left out.
        strict_json_schema=False,
    )
