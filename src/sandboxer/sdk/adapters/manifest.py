"""For programs that talk with a model in plain text, as AutoGPT does: a list of commands, a reply at a time.

async with AsyncSandboxer() as client:
    prompt = "Reply with one command as JSON.\\n" + json.dumps(manifest())
    said = await perform(client, model(prompt))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.tools import Offer, ToolResult, tools

# What a model replies.
REPLY = {
    "thoughts": {"text": "why this command"},
    "command": {"name": "a name", "args": {"argument": "value"}},
}


def manifest(what: Offer | Sequence[str] = "core") -> dict[str, Any]:
    """Returns what a model is told: the commands of an offer, or those that are named, and how to reply."""
    return {
        "schema_version": "v1",
        "name_for_model": "sandboxer",
        "description_for_model": "Makes walled computers, runs programs in them, keeps their disks.",
        "reply": REPLY,
        "commands": [
            {"name": tool.name, "description": tool.description, "args": tool.schema} for tool in tools(what)
        ],
    }


async def perform(client: AsyncSandboxer, reply: str) -> ToolResult:
    """Does what a reply asks for. A reply that asks for nothing is answered as an error, for the model."""
    command = _command_in(reply)
    if command is None:
        return ToolResult(f"Reply with JSON of this form: {json.dumps(REPLY)}", is_error=True)
    return await client.tools.run(command["name"], command.get("args") or {})


def _command_in(reply: str) -> dict[str, Any] | None:
    """Finds the first JSON object with a command; models write words and fences around it."""
    decoder, start = json.JSONDecoder(), reply.find("{")
    while start >= 0:
        try:
            command = decoder.raw_decode(reply, start)[0].get("command")
            if isinstance(command, dict) and isinstance(command.get("name"), str):
                return command
        except (ValueError, RecursionError):
            pass  # A brace that begins no JSON, or one of thousands.
        start = reply.find("{", start + 1)
    return None
