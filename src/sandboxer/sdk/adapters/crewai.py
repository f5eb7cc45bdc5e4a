"""Sandboxes as tools of CrewAI (`sandboxer[crewai]`).

with Sandboxer() as client:
    agent = Agent(role="worker", goal="…", backstory="…", tools=sandbox_tools(client), llm=model)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crewai.tools import BaseTool
from crewai.utilities.pydantic_schema_utils import create_model_from_schema
from pydantic import PrivateAttr

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.tools import Offer, Tool, tools


def sandbox_tools(client: Sandboxer, what: Offer | Sequence[str] = "core") -> list[BaseTool]:
    """Returns the tools of an offer, or those that are named. What is refused is said to the model."""
    return [SandboxTool(client, tool) for tool in tools(what)]


class SandboxTool(BaseTool):
    """One tool of the platform."""

    _client: Sandboxer = PrivateAttr()

    def __init__(self, client: Sandboxer, tool: Tool) -> None:
        schema = create_model_from_schema({"title": tool.name, **tool.schema}, model_name=tool.name)
        super().__init__(name=tool.name, description=tool.description, args_schema=schema)
        self._client = client

    def _run(self, **arguments: Any) -> str:
        return self._client.tools.run(self.name, arguments).text
