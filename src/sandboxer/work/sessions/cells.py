"""A cell is one piece of code of a session: what was asked, everything it printed within limits, and how it
ended.

Cells are kept in memory. After a restart of the server they are rebuilt from what the sandbox kept of the
session's output. Each reader has its own position.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from sandboxer.work.sessions.frames import Fault

# Bytes kept of each stream of one cell.
OUTPUT_LIMIT = 1 << 20
RESULTS_LIMIT = 64
# Bytes kept of all results of one cell: one large picture, or many small ones.
RESULTS_BYTES = 8 << 20
# How many cells of one session are kept, and how many bytes together; the last cell is always kept whole.
KEPT_CELLS = 200
KEPT_BYTES = 8 << 20


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


@dataclass(frozen=True, slots=True)
class Text:
    # 1: stdout, 2: stderr.
    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Result:
    mimes: Mapping[str, str]


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
    size: int = 0
    _kept: dict[int, int] = field(default_factory=lambda: {1: 0, 2: 0})
    _results: int = 0
    _shown: int = 0
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def print(self, stream: int, data: bytes) -> None:
        # Every piece costs its bytes and a fixed amount, so that a program that prints byte by byte is
        # bounded too.
        fits = data[: max(0, OUTPUT_LIMIT - self._kept[stream])]
        self._kept[stream] += len(fits) + 32
        if len(fits) < len(data):
            self.truncated = True
        if not fits:
            return
        self.parts.append(Text(stream, fits))
        self.size += len(fits) + 64
        self._tell()

    def show(self, mimes: Mapping[str, str]) -> None:
        # The size in memory, where one rare character makes every letter of a text four bytes wide.
        size = sum(sys.getsizeof(text) for text in mimes.values())
        if self._results >= RESULTS_LIMIT or self._shown + size > RESULTS_BYTES:
            self.truncated = True
            return
        self._results += 1
        self._shown += size
        self.parts.append(Result(mimes))
        self.size += size
        self._tell()

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

    def _tell(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
