"""What hosts of models have in their configuration to start our stdio server, or to speak to a platform.

The formats differ in three words; which host wants which is in the guide (docs/guides/mcp.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

NAME = "sandboxer"
Host = Literal["claude", "cursor", "vscode", "codex", "gemini"]
HOSTS: tuple[Host, ...] = ("claude", "cursor", "vscode", "codex", "gemini")


def started(
    host: Host, command: str, words: Sequence[str], environment: Mapping[str, str] = MappingProxyType({})
) -> str:
    """Returns the configuration of a host that starts the server itself, with this in its environment."""
    server: dict[str, Any] = {"command": command, "args": list(words)}
    if environment:
        server["env"] = dict(environment)
    if host == "codex":
        return _toml(server)
    if host == "vscode":
        return _json("servers", {"type": "stdio", **server})
    return _json("mcpServers", server)


def spoken_to(host: Host, url: str, token_variable: str) -> str:
    """Returns the configuration of a host that speaks to the platform over HTTP, with a token from its
    environment. Without one, a host that knows OAuth asks its user.
    """
    if host == "codex":
        return _toml({"url": url, "bearer_token_env_var": token_variable})
    variable = {"vscode": f"${{env:{token_variable}}}", "cursor": f"${{env:{token_variable}}}"}
    head = {"Authorization": f"Bearer {variable.get(host, f'${{{token_variable}}}')}"}
    if host == "vscode":
        return _json("servers", {"type": "http", "url": url, "headers": head})
    if host == "gemini":
        return _json("mcpServers", {"httpUrl": url, "headers": head})
    return _json("mcpServers", {"type": "http", "url": url, "headers": head})


def _json(below: str, server: Mapping[str, Any]) -> str:
    return json.dumps({below: {NAME: server}}, indent=2)


def _toml(server: Mapping[str, Any]) -> str:
    return "\n".join(
        [f"[mcp_servers.{NAME}]", *(f"{name} = {_value(value)}" for name, value in server.items())]
    )


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{name} = {_value(inner)}" for name, inner in value.items()) + " }"
    # A JSON text is a TOML text, and a JSON list of texts is a TOML list.
    return json.dumps(value)
