"""Commands: what to run, and what comes of it, piece by piece.

`EventParser` makes server-sent events out of text lines: a small machine that both clients feed.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias, TypedDict

from sandboxer.sdk.call import parse
from sandboxer.sdk.errors import BrokenAnswer, api_error

if TYPE_CHECKING:
    from sandboxer.wire import processes

# What the network and the platform may add to the command's own time.
MARGIN_S = 30.0
# Text for a shell, or the words of one program.
What = str | Sequence[str]


@dataclass(frozen=True, slots=True)
class Chunk:
    """A piece of output, exactly as the command wrote it."""

    stream: Literal["stdout", "stderr"]
    data: bytes
    # Bytes lost just before this piece, because nobody read them in time.
    dropped: int = 0


Piece: TypeAlias = "processes.ExecStarted | Chunk | processes.ExecExit"


class Settings(TypedDict):
    """Where and as whom a command runs."""

    cwd: str | None
    env: Mapping[str, str] | None
    user: str | None
    timeout_s: float | None


class Named(TypedDict, total=False):
    command: str
    argv: Sequence[str]


class Input(TypedDict, total=False):
    stdin: str
    stdin_encoding: str


@dataclass(frozen=True, slots=True)
class ServerEvent:
    name: str
    data: str
    id: str | None


def patience_s(timeout_s: float | None) -> float:
    """How long a client waits for a command that may take so long."""
    # Few verbs of the command line run one, and all of them come by here.
    from sandboxer.wire import processes  # noqa: PLC0415

    return (timeout_s or processes.TIMEOUT_DEFAULT_S) + MARGIN_S


def named(what: What) -> Named:
    return {"command": what} if isinstance(what, str) else {"argv": what}


def input_of(stdin: str | bytes | None) -> Input:
    if stdin is None:
        return {}
    if isinstance(stdin, str):
        return {"stdin": stdin}
    return {"stdin": base64.b64encode(stdin).decode(), "stdin_encoding": "base64"}


def piece(event: ServerEvent) -> Piece | None:
    """What an event of a command's stream says; raises the problem of a broken stream."""
    from sandboxer.wire import processes  # noqa: PLC0415

    if event.name in ("stdout", "stderr"):
        output = parse(processes.ExecOutput, event.data)
        return Chunk(stream_of(event), bytes_of(output.data), output.dropped)
    if event.name == "started":
        return parse(processes.ExecStarted, event.data)
    if event.name == "exit":
        return parse(processes.ExecExit, event.data)
    raise_problem(event)
    return None


def stream_of(event: ServerEvent) -> Literal["stdout", "stderr"]:
    return "stdout" if event.name == "stdout" else "stderr"


def raise_problem(event: ServerEvent) -> None:
    """Other words than `error` come from a newer server."""
    if event.name == "error":
        try:
            problem = json.loads(event.data)
            status = int(problem["status"])
        except (ValueError, KeyError, TypeError):
            raise BrokenAnswer(f"The error that ended a stream is no problem: {event.data[:80]!r}") from None
        raise api_error(status, problem, problem.get("request_id"))


def bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise BrokenAnswer("A piece of output is not base 64.") from None


class EventParser:
    """Feed it lines; it returns an event whenever one is complete."""

    def __init__(self) -> None:
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None

    def feed(self, line: str) -> ServerEvent | None:
        if not line:
            return self._complete()
        if line.startswith(":"):
            return None
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            self._name = value
        elif field == "data":
            self._data.append(value)
        elif field == "id":
            self._id = value
        return None

    def _complete(self) -> ServerEvent | None:
        if not self._data and not self._name:
            return None
        event = ServerEvent(self._name or "message", "\n".join(self._data), self._id)
        self._name, self._data = "", []
        return event
