"""Sandboxes as tools of Pydantic AI (`sandboxer[pydantic-ai]`).

async with AsyncSandboxer() as client:
    agent = Agent(model, tools=sandbox_tools(client))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic_ai import Tool as AgentTool

from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.tools import Offer, Tool, tools


def sandbox_tools(client: AsyncSandboxer, what: Offer | Sequence[str] = "core") -> list[AgentTool[Any]]:
    """Returns the tools of an offer, or those that are named. What is refused is said to the model."""
    return [_made(client, tool) for tool in tools(what)]


def _made(client: AsyncSandboxer, tool: Tool) -> AgentTool[Any]:
    async def run(**arguments: Any) -> str:
        return (await client.tools.run(tool.name, arguments)).text

    return AgentTool.from_schema(
        run, name=tool.name, description=tool.description, json_schema=dict(tool.schema)
    )
