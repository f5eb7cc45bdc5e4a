"""Sandboxes as tools of LangChain and LangGraph (`sandboxer[langchain]`).

async with AsyncSandboxer() as client:
    agent = create_agent(model, sandbox_tools(client))
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool

from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.tools import Offer, Tool, ToolResult, tools


def sandbox_tools(client: AsyncSandboxer, what: Offer | Sequence[str] = "core") -> list[BaseTool]:
    """Returns the tools of an offer, or those that are named. What is refused is said to the model."""
    return [_made(client, tool) for tool in tools(what)]


def _made(client: AsyncSandboxer, tool: Tool) -> BaseTool:
    async def run(**arguments: Any) -> tuple[str, ToolResult]:
        result = await client.tools.run(tool.name, arguments)
        return result.text, result

    return StructuredTool(
        name=tool.name,
        description=tool.description,
        args_schema=dict(tool.schema),
        coroutine=run,
        # The program gets the whole result as the message's artifact.
        response_format="content_and_artifact",
    )
