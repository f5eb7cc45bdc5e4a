"""Terminals: the words of the WebSocket, and how it is opened."""

from __future__ import annotations

import json

from sandboxer.sdk.call import Call, parse
from sandboxer.sdk.errors import BrokenAnswer, api_error
from sandboxer.sdk.exchange import Signer
from sandboxer.wire.processes import TerminalExit, TerminalProblem, TerminalReady

MAX_FRAME = 16 * 1024 * 1024
Word = TerminalReady | TerminalExit


def dialing(signer: Signer, url: str, call: Call[None]) -> tuple[str, dict[str, str]]:
    """Returns the WebSocket's address and the signed headers to open it with."""
    scheme, _, rest = url.partition("://")
    address = f"{'wss' if scheme == 'https' else 'ws'}://{rest}{call.target}"
    return address, signer.head(call.method, call.target, call.body.sha256)


def resize(cols: int, rows: int) -> str:
    return json.dumps({"type": "resize", "cols": cols, "rows": rows})


def word(text: str) -> Word | None:
    """What a text frame says; raises the problem of a broken terminal. Other words: a newer server."""
    try:
        kind = json.loads(text).get("type")
    except (ValueError, AttributeError):
        raise BrokenAnswer(f"Not a word of the terminal: {text[:80]!r}") from None
    if kind == "ready":
        return parse(TerminalReady, text)
    if kind == "exit":
        return parse(TerminalExit, text)
    if kind == "error":
        problem = parse(TerminalProblem, text).problem
        raise api_error(problem.status, problem.model_dump(), problem.request_id)
    return None
