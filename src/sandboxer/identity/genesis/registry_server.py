"""Serves a private registry, for deployments of one's own and tests: agents from a JSON file, as the public
one does.

    python -m sandboxer.identity.genesis.registry_server --file agents.json --port 7799

The file is a list of {"btcAddress", "stxAddress", "level", "displayName"?}; a change of it is seen at once.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import uvicorn
from starlette.types import Receive, Scope, Send

from sandboxer.identity.genesis.gate import canonical
from sandboxer.kernel.errors import InvalidRequest

_PREFIX = "/api/verify/"
_LEVEL_NAMES = ("Unverified", "Verified Agent", "Genesis")


class RegistryApp:
    """Answers as a registry, by ASGI. Give it agents, or a file to read them from."""

    def __init__(self, agents: Sequence[Mapping[str, Any]] = (), *, file: Path | None = None) -> None:
        self._file = file
        self._seen: tuple[int, int] | None = None
        self._by_address = _indexed(agents)
        self._refresh()

    def set_agents(self, agents: Sequence[Mapping[str, Any]]) -> None:
        self._by_address = _indexed(agents)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            return
        self._refresh()
        status, answer = self._answer(scope["method"], scope["path"])
        body = json.dumps(answer).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, method: str, path: str) -> tuple[int, dict[str, object]]:
        if method != "GET" or not path.startswith(_PREFIX):
            return 404, {"error": "GET /api/verify/{btc or stx address}"}
        try:
            agent = self._by_address.get(canonical(path.removeprefix(_PREFIX)))
        except InvalidRequest as error:
            return 400, {"error": str(error)}
        if agent is None:
            return 404, {"registered": False}
        level = agent["level"]
        return 200, {
            "registered": True,
            "agent": {name: value for name, value in agent.items() if name != "level"},
            "level": level,
            "levelName": _LEVEL_NAMES[min(level, len(_LEVEL_NAMES) - 1)],
        }

    def _refresh(self) -> None:
        """Reads the file again if it has changed. While it does not parse, nobody passes."""
        if self._file is None:
            return
        found = self._file.stat()
        stamp = (found.st_mtime_ns, found.st_size)
        if stamp != self._seen:
            self._by_address = _indexed(json.loads(self._file.read_text("utf-8")))
            self._seen = stamp


def _indexed(agents: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for agent in agents:
        if type(agent.get("level")) is not int or agent["level"] < 0:
            raise InvalidRequest(field="level", why="an agent needs a level: 0, 1, 2, …")
        for name in ("btcAddress", "stxAddress"):
            if (address := canonical(str(agent.get(name, "")))) in found:
                raise InvalidRequest(field=name, why=f"{address} is listed twice")
            found[address] = agent
    return found


async def _lifespan(receive: Receive, send: Send) -> None:
    while True:
        message = await receive()
        await send({"type": message["type"] + ".complete"})
        if message["type"] == "lifespan.shutdown":
            return


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Serve a registry of agents.")
    parser.add_argument("--file", type=Path, required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=7799)
    given = parser.parse_args(arguments)
    uvicorn.run(RegistryApp(file=given.file), host=given.host, port=given.port, log_level="warning")


if __name__ == "__main__":
    main()
