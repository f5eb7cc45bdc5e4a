"""Sandboxes as tools of smolagents (`sandboxer[smolagents]`).

with Sandboxer() as client:
    agent = ToolCallingAgent(tools=sandbox_tools(client), model=model)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smolagents import Tool as AgentTool

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.tools import Offer, Tool, tools

_KINDS = {"string", "boolean", "integer", "number", "array", "object"}


def sandbox_tools(client: Sandboxer, what: Offer | Sequence[str] = "core") -> list[AgentTool]:
    """Returns the tools of an offer, or those that are named. What is refused is said to the model."""
    return [SandboxTool(client, tool) for tool in tools(what)]


class SandboxTool(AgentTool):
    """One tool of the platform; code of a `CodeAgent` calls it like any function."""

    # What it takes is known when it is made.
    skip_forward_signature_validation = True
    output_type = "string"

    def __init__(self, client: Sandboxer, tool: Tool) -> None:
        self.name, self.description = tool.name, tool.description
        needed = list(tool.schema.get("required", ()))
        properties: Mapping[str, Mapping[str, Any]] = tool.schema["properties"]
        # The order that the model is shown, and in which it may leave names out.
        order = [*needed, *(name for name in properties if name not in needed)]
        self.inputs = {name: _described(name, properties[name], name in needed) for name in order}
        self._client = client
        super().__init__()

    def forward(self, *words: Any, **arguments: Any) -> str:
        """Calls it; arguments without a name are taken in the order of `inputs`."""
        if len(words) > len(self.inputs):
            return f"{self.name} takes {len(self.inputs)} arguments at most. Call it again."
        given = dict(zip(self.inputs, words, strict=False)) | arguments
        return self._client.tools.run(self.name, given).text


def _described(name: str, schema: Mapping[str, Any], is_needed: bool) -> dict[str, Any]:
    kind = schema.get("type")
    described = {
        **schema,
        "type": kind if kind in _KINDS else "any",
        "description": schema.get("description", name.replace("_", " ")),
    }
    return described if is_needed else {**described, "nullable": True}
