"""Commands: what to run, and what comes of it, piece by piece.

`EventParser` makes server-sent events out of bytes: a small machine that both clients feed. Of terminals
it has the words of the WebSocket, and how it is opened.
"""

from __future__ import annotations

import base64
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, TypedDict

from sandboxer.sdk.call import Call, parse
from sandboxer.sdk.errors import BrokenAnswer, api_error

if TYPE_CHECKING:
    from sandboxer.sdk.exchange import Signer
    from sandboxer.wire import images, processes

# What the network and the platform may add to the command's own time.
MARGIN_S = 30.0
# Text for a shell, or the words of one program.
What = str | Sequence[str]
MAX_FRAME = 16 * 1024 * 1024
# A whole event: the results of a cell are the largest.
MOST_EVENT = 64 * 1024 * 1024


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


class ServerEvent(NamedTuple):
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


def image_piece(event: ServerEvent) -> str | images.PublishedImage | None:
    """A line that a builder of images says, or the image; raises the problem of a broken stream."""
    from sandboxer.wire import images  # noqa: PLC0415

    if event.name == "output":
        return parse(images.ImageProgress, event.data).text
    if event.name == "done":
        return parse(images.PublishedImage, event.data)
    raise_problem(event)
    return None


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
    """Feed it bytes; it yields the events that are complete. Raises BrokenAnswer for one that never is."""

    def __init__(self) -> None:
        self._name = ""
        self._data: list[str] = []
        self._id: str | None = None
        self._held = bytearray()
        # What the lines of an event that is not complete take.
        self._size = 0

    def feed(self, piece: bytes) -> Iterator[ServerEvent]:
        self._held += piece
        if b"\n" in piece:
            # Only here: what a program prints may have the other ends of lines that Unicode knows.
            *lines, rest = bytes(self._held).split(b"\n")
            self._held = bytearray(rest)
            for line in lines:
                self._size += len(line)
                if event := self._line(line.removesuffix(b"\r").decode("utf-8", "replace")):
                    yield event
        if len(self._held) + self._size > MOST_EVENT:
            raise BrokenAnswer(f"An event is longer than {MOST_EVENT >> 20} MiB.")

    def _line(self, line: str) -> ServerEvent | None:
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
        self._size = 0
        if not self._data and not self._name:
            return None
        event = ServerEvent(self._name or "message", "\n".join(self._data), self._id)
        self._name, self._data = "", []
        return event


def dialing(signer: Signer, url: str, call: Call[None]) -> tuple[str, dict[str, str]]:
    """Returns the address of a terminal's WebSocket and the signed headers to open it with."""
    scheme, _, rest = url.partition("://")
    address = f"{'wss' if scheme == 'https' else 'ws'}://{rest}{call.target}"
    return address, signer.head(call.method, call.target, call.body.sha256)


def dialed(path: str | None) -> socket.socket | None:
    """Returns a connection to a platform's socket on this machine; None where it is reached by a network."""
    if path is None:
        return None
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.connect(path)
    except OSError:
        made.close()
        raise
    return made


def resize(cols: int, rows: int) -> str:
    return json.dumps({"type": "resize", "cols": cols, "rows": rows})


def terminal_word(text: str) -> processes.TerminalReady | processes.TerminalExit | None:
    """What a text frame says; raises the problem of a broken terminal. Other words: a newer server."""
    from sandboxer.wire import processes  # noqa: PLC0415

    try:
        kind = json.loads(text).get("type")
    except (ValueError, AttributeError):
        raise BrokenAnswer(f"Not a word of the terminal: {text[:80]!r}") from None
    if kind == "ready":
        return parse(processes.TerminalReady, text)
    if kind == "exit":
        return parse(processes.TerminalExit, text)
    if kind == "error":
        problem = parse(processes.TerminalProblem, text).problem
        raise api_error(problem.status, problem.model_dump(), problem.request_id)
    return None
