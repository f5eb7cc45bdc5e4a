"""A cell is one piece of code of a session: what was asked, everything it printed within limits, and how it
ended.

Cells are kept in memory (`shelf.py`). After a restart of the server they are rebuilt from what the sandbox
kept of the session's output. Each reader has its own position.

Frames are what a keeper says, parsed into values. Every line is untrusted: one that does not have the right
form is an error with a reason, and one that is too long never gets here (`Lines`).
"""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sandboxer.kernel.budget import Shape
from sandboxer.kernel.errors import GuestMisbehaved, TooLarge
from sandboxer.kernel.values import brief_value_class

# Bytes kept of each stream of one cell.
OUTPUT_LIMIT = 1 << 20
RESULTS_LIMIT = 64
# Bytes kept of all results of one cell: one large picture, or many small ones.
RESULTS_BYTES = 8 << 20
# What a cell takes in memory beside its texts, and each piece of its output.
CELL_COSTS = 2048
PIECE_COSTS = 96


class Status(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    OK = "ok"
    # It raised an exception; in a shell, its last command failed.
    ERROR = "error"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    # The interpreter ended while it ran.
    DIED = "died"
    # It never ran, because the session ended or was restarted before.
    CANCELLED = "cancelled"


@brief_value_class
class Text:
    # 1: stdout, 2: stderr.
    stream: int
    data: bytes


@brief_value_class
class Result:
    mimes: Mapping[str, str]
    # Whether it is what the cell comes to; others were displayed on the way.
    is_main: bool


Part = Text | Result


@dataclass(eq=False, slots=True)
class Cell:
    n: int
    code: str
    timeout_s: float
    asked_at: datetime
    status: Status = Status.QUEUED
    parts: list[Part] = field(default_factory=list)
    fault: Fault | None = None
    exit_code: int | None = None
    truncated: bool = False
    began_at: datetime | None = None
    ended_at: datetime | None = None
    duration_ms: float | None = None
    # Why the platform asked it to stop, if it did.
    stopping: Status | None = None
    over: asyncio.Event = field(default_factory=asyncio.Event)
    # Asked before it grows by so many bytes; if there is no room, it keeps no more.
    room: Callable[[int], bool] = field(default=lambda _: True, repr=False)
    # What it takes in memory, with its code.
    size: int = field(init=False)
    _kept: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0})
    _results: int = 0
    _shown: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.size = CELL_COSTS + sys.getsizeof(self.code)

    def print(self, stream: int, data: bytes) -> None:
        # Every piece costs its bytes and a fixed amount, so that a program that prints byte by byte is
        # bounded too.
        fits = data[: max(0, OUTPUT_LIMIT - self._kept[stream])]
        self._kept[stream] += len(fits) + 32
        if len(fits) < len(data):
            self.truncated = True
        if fits and self._grow(len(fits) + PIECE_COSTS):
            self.parts.append(Text(stream, fits))
            self._tell()

    def show(self, mimes: Mapping[str, str], *, is_main: bool = True) -> None:
        # The size in memory, where one rare character makes every letter of a text four bytes wide.
        size = sum(sys.getsizeof(text) for one in mimes.items() for text in one)
        if self._results >= RESULTS_LIMIT or self._shown + size > RESULTS_BYTES:
            self.truncated = True
            return
        if not self._grow(size + PIECE_COSTS):
            return
        self._results += 1
        self._shown += size
        self.parts.append(Result(mimes, is_main))
        self._tell()

    def blame(self, fault: Fault) -> None:
        """Notes what went wrong in it."""
        fits = self._grow(sum(sys.getsizeof(text) for text in (fault.name, fault.message, fault.traceback)))
        self.fault = fault if fits else Fault(fault.name, "", "")

    def forget_code(self) -> None:
        self.size -= sys.getsizeof(self.code)
        self.code, self.truncated = "", True

    def end(self, status: Status, *, at: datetime) -> None:
        self.status = status
        self.ended_at = at
        if self.began_at is not None:
            self.duration_ms = round((at - self.began_at).total_seconds() * 1000, 3)
        self.over.set()
        self._tell()

    def text(self, stream: int) -> bytes:
        return b"".join(part.data for part in self.parts if isinstance(part, Text) and part.stream == stream)

    def results(self) -> Sequence[Mapping[str, str]]:
        return [part.mimes for part in self.parts if isinstance(part, Result)]

    async def follow(self, after: int = 0) -> AsyncIterator[tuple[int, Part]]:
        """Yields each part with its number, starting at `after`, until the cell has ended."""
        at = after
        while True:
            news = self._news
            while at < len(self.parts):
                at += 1
                yield at, self.parts[at - 1]
            if self.over.is_set():
                return
            await news.wait()

    def _grow(self, amount: int) -> bool:
        if not self.room(amount):
            self.truncated = True
            return False
        self.size += amount
        return True

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


# Enough for a picture of 4 MiB in base 64 inside JSON.
MOST_LINE = 6 << 20
MOST_MIMES = 16
MOST_MARKS = 1000
MOST_TEXT = 256 * 1024
# As the drivers cut them.
MOST_MESSAGE, MOST_TRACEBACK = 20_000, 200_000


@brief_value_class
class Ready:
    """The interpreter accepts cells."""


@brief_value_class
class Begun:
    n: int
    code: str
    note: Mapping[str, Any]


@brief_value_class
class Printed:
    n: int
    # 1: stdout, 2: stderr.
    stream: int
    data: bytes


@brief_value_class
class Shown:
    n: int
    mimes: Mapping[str, str]
    is_main: bool


@brief_value_class
class Fault:
    name: str
    message: str
    traceback: str


@brief_value_class
class Done:
    n: int
    status: int
    fault: Fault | None
    # How many bytes of stdout and stderr were dropped beyond the limit.
    lost: tuple[int, int]


@brief_value_class
class Gone:
    """The interpreter has ended, with its exit code or minus the signal; `why` is what it said before it was
    ready.
    """

    code: int
    why: str


@brief_value_class
class Hello:
    last: int
    running: int | None
    is_ready: bool


Frame = Ready | Begun | Printed | Shown | Done | Gone | Hello


@dataclass(slots=True)
class Lines:
    """Cuts a stream into lines of limited length; after a gap it continues at the next line."""

    held: bytearray = field(default_factory=bytearray)
    in_step: bool = True

    def skip(self) -> None:
        """Lets go of the line that is not complete, and continues at the next."""
        self.held = bytearray()
        self.in_step = False

    def feed(self, data: bytes, dropped: int) -> list[bytes]:
        if dropped:
            self.skip()
        if not self.in_step and b"\n" not in data:
            return []
        self.held += data
        whole: list[bytes] = []
        # Data is copied only when a line is complete: a sender of single bytes must not cause megabytes to be
        # moved each time.
        if b"\n" in data:
            *whole, rest = bytes(self.held).split(b"\n")
            self.held = bytearray(rest)
            if not self.in_step:
                self.in_step = True
                whole = whole[1:]
        if len(self.held) > MOST_LINE:
            raise GuestMisbehaved(why="a session's line has no end")
        return whole


def read_frame(line: bytes) -> Frame | None:
    """Parses one line. Returns None for a kind that only a newer keeper knows. Raises GuestMisbehaved."""
    try:
        # The largest have a text for each of 16 kinds. Five MiB of numbers kept the loop for 0.8 s.
        Shape.check(line, MOST_MARKS)
        raw = json.loads(line)
        return _frame(raw["t"], raw)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, TooLarge):
        raise GuestMisbehaved(why="a session's line is not in its form") from None


def _frame(kind: object, raw: Mapping[str, Any]) -> Frame | None:
    match kind:
        case "out":
            stream = _number(raw["s"], most=2)
            return Printed(_number(raw["n"]), max(1, stream), base64.b64decode(raw["d"], validate=True))
        case "result":
            # Older keepers do not say which one is the main result.
            return Shown(_number(raw["n"]), _mimes(raw["m"]), raw.get("main", True) is True)
        case "done":
            out, err = raw["lost"]
            fault = None if raw["fault"] is None else _fault(raw["fault"])
            return Done(_number(raw["n"]), int(raw["status"]) & 0xFFFF, fault, (_number(out), _number(err)))
        case "begin":
            note = raw.get("m") if isinstance(raw.get("m"), dict) else {}
            return Begun(_number(raw["n"]), _text(raw["code"]), note or {})
        case "ready":
            return Ready()
        case "died":
            return Gone(int(raw["code"]), _text(raw.get("why", ""))[-2000:])
        case "failed":
            return Gone(127, _text(raw["why"])[-2000:])
        case "hello":
            running = raw["running"]
            return Hello(
                _number(raw["n"]), None if running is None else _number(running), raw["ready"] is True
            )
    return None


def _mimes(raw: Mapping[str, Any]) -> Mapping[str, str]:
    if len(raw) > MOST_MIMES:
        raise ValueError("too many forms of one result")
    return {_text(name)[:100]: _whole(str(value)) for name, value in raw.items()}


def _fault(raw: Mapping[str, Any]) -> Fault:
    name, message = _text(raw.get("name", "Error")), _text(raw.get("message", ""))
    return Fault(name[:200], message[:MOST_MESSAGE], _text(raw.get("traceback", ""))[-MOST_TRACEBACK:])


def _number(value: object, *, most: int = 2**53) -> int:
    if not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError("not a number that can be")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return _whole(value[:MOST_TEXT])


def _whole(text: str) -> str:
    """Replaces halves of characters, which JSON can name and no answer can contain."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
