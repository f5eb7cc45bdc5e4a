"""Terminals: the WebSocket's address and words, and the list of those that run."""

from __future__ import annotations

import json

from sandboxer.sdk.calls import Call, target
from sandboxer.sdk.errors import BrokenAnswer, api_error
from sandboxer.sdk.exchange import Signer
from sandboxer.sdk.routes.reading import model, nothing, parse
from sandboxer.sdk.signing import EMPTY_SHA256
from sandboxer.wire.terminals import TerminalExit, TerminalList, TerminalProblem, TerminalReady

MAX_FRAME = 16 * 1024 * 1024
Word = TerminalReady | TerminalExit


def listing(sandbox_id: str) -> Call[TerminalList]:
    where = target("/v1/sandboxes/{}/terminals", sandbox_id)
    return Call(method="GET", target=where, read=model(TerminalList))


def end(sandbox_id: str, terminal_id: str) -> Call[None]:
    where = target("/v1/sandboxes/{}/terminals/{}", sandbox_id, terminal_id)
    return Call(method="DELETE", target=where, read=nothing)


def address(
    sandbox_id: str,
    *,
    cols: int,
    rows: int,
    terminal_id: str | None = None,
    command: str | None = None,
    cwd: str | None = None,
    user: str | None = None,
) -> str:
    """The target of the WebSocket's opening request."""
    query = {"terminal_id": terminal_id, "cols": cols, "rows": rows, "command": command}
    return target("/v1/sandboxes/{}/terminal", sandbox_id, query=query | {"cwd": cwd, "user": user})


def dialing(signer: Signer, url: str, where: str) -> tuple[str, dict[str, str]]:
    """The WebSocket address and the signed headers to open it with."""
    scheme, _, rest = url.partition("://")
    return f"{'wss' if scheme == 'https' else 'ws'}://{rest}{where}", signer.head("GET", where, EMPTY_SHA256)


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
