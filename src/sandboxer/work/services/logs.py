"""The log of a service keeps what it printed in two bounded files on the host. It outlives the service's
processes, reboots of its sandbox, and the server.

Each line is a JSON object: a line of output with the position of its stream after it, so that a pump that
attaches again after a restart knows what it has written already; or a message of the platform (`system`).
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from pathlib import Path

from sandboxer.backends.guest import Output, Stream
from sandboxer.kernel.values import value_class

# Of each of the two files.
MAX_FILE_BYTES = 1024 * 1024
# A line that is longer is kept in pieces.
MAX_LINE_BYTES = 8 * 1024
_STANDS_KEPT = 32
# The beginning and the end of a line as `_written` writes it; printed text can never look like them.
_HEAD = re.compile(rb'\{"n": ([0-9]+), "t": "[^"]*", "r": ([0-9]+), "s": "([a-z]+)"')
_STAND = re.compile(rb'"p": "([^"]+)", "o": ([0-9]+)\}$')
# Lines kept in memory for followers, and what they may take there; whoever is further behind reads the files.
_RECENT, _RECENT_BYTES = 500, 256 * 1024
# What is read of the files at a time, so that others have their turn in between.
_BATCH, _BATCH_BYTES = 100, 64 * 1024


@value_class
class Line:
    # Grows by one with each line of a service; followers go on from it.
    number: int
    at: datetime
    # The number of the process that printed it.
    run: int
    stream: str
    text: str
    process_id: str = ""
    # Bytes of this stream of this process up to the end of the line.
    offset: int = 0


class ServiceLog:
    """The log of one service. Used by one event loop."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._new = folder / "log"
        self._old = folder / "log.1"
        self._grown = asyncio.Event()
        self._next = 1
        self._is_removed = False
        self._recent: deque[Line] = deque()
        self._recent_bytes = 0
        self._offsets: dict[tuple[str, str], int] = {}
        # The highest number of a process that was ever written.
        self.last_run = 0
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if self._new.exists() and not self._new.read_bytes().endswith(b"\n"):
            # A crash cut the last line short. A newline keeps the next line from being lost with it.
            with self._new.open("ab") as file:
                file.write(b"\n")
        for head, stand in _stands(self._raw()):
            self._next = int(head[1]) + 1
            self.last_run = max(self.last_run, int(head[2]))
            if stand is not None:
                self._stand(stand[1].decode(), head[3].decode(), int(stand[2]))

    def offset(self, process_id: str, stream: str) -> int:
        """Returns how many bytes of this stream of this process are in the log."""
        return self._offsets.get((process_id, stream), 0)

    def write(self, at: datetime, run: int, stream: str, text: str) -> None:
        """Writes a message of the platform."""
        self.write_all(at, run, "", [(stream, text, 0)])

    def write_all(
        self, at: datetime, run: int, process_id: str, lines: Sequence[tuple[str, str, int]]
    ) -> None:
        """Writes lines of one process, each with its stream and the stream's position after it."""
        made = []
        for stream, text, offset in lines:
            line = Line(
                number=self._next,
                at=at,
                run=run,
                stream=stream,
                text=text,
                process_id=process_id,
                offset=offset,
            )
            self._next += 1
            self._remember(line)
            self._stand(process_id, stream, offset)
            made.append(_written(line))
        with self._new.open("ab") as file:
            file.write(b"".join(made))
            size = file.tell()
        self.last_run = max(self.last_run, run)
        if size >= MAX_FILE_BYTES:
            self._new.replace(self._old)
        self._grown.set()

    def _remember(self, line: Line) -> None:
        self._recent.append(line)
        self._recent_bytes += sys.getsizeof(line.text)
        while len(self._recent) > _RECENT or self._recent_bytes > _RECENT_BYTES:
            self._recent_bytes -= sys.getsizeof(self._recent.popleft().text)

    def _stand(self, process_id: str, stream: str, offset: int) -> None:
        # Moved to the end: the offsets written longest ago are dropped, since that process has ended.
        self._offsets.pop((process_id, stream), None)
        self._offsets[process_id, stream] = offset
        while len(self._offsets) > _STANDS_KEPT:
            del self._offsets[next(iter(self._offsets))]

    def tail(self, count: int) -> list[Line]:
        """Returns the last `count` lines, oldest first."""
        lines: list[Line] = []
        after = max(0, self.last - count)
        while batch := self.batch(after):
            lines += batch
            after = batch[-1].number
        return lines

    async def follow(self, after: int) -> AsyncIterator[Line]:
        """Yields every line with a greater number, first those that are kept and then new ones, until the log
        is removed.
        """
        while not self._is_removed:
            # Cleared before reading: a line that the read misses sets it again.
            self._grown.clear()
            batch = self.batch(after)
            for line in batch:
                yield line
                after = line.number
            if not batch:
                after = max(after, self.last)
                if not self._is_removed:
                    await self._grown.wait()

    def batch(self, after: int) -> Sequence[Line]:
        """Returns the next few lines with a greater number; empty if there are none."""
        if self.last <= after:
            return ()
        if self._recent and self._recent[0].number <= after + 1:
            begin = after + 1 - self._recent[0].number
            return tuple(islice(self._recent, begin, begin + _BATCH))
        for file in (self._old, self._new):
            try:
                raw = file.read_bytes()
            except FileNotFoundError:
                continue
            if lines := _few(raw, _beyond(raw, after)):
                return lines
        return ()

    @property
    def last(self) -> int:
        return self._next - 1

    def remove(self) -> None:
        self._is_removed = True
        self._grown.set()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _raw(self) -> Iterator[bytes]:
        for file in (self._old, self._new):
            try:
                raw = file.read_bytes()
            except FileNotFoundError:
                continue
            yield from raw.splitlines()


class LineCutter:
    """A line cutter splits what one process prints into lines, and knows the position where each ends."""

    def __init__(self, starts: Mapping[Stream, int]) -> None:
        self._at = dict.fromkeys(Stream, 0)
        self._skip = dict(starts)
        self._rest = dict.fromkeys(Stream, b"")

    def feed(self, output: Output) -> Iterator[tuple[Stream, str, int]]:
        """Returns each finished line: its stream, its text, and the position of its stream after it."""
        stream = output.stream
        begin = self._at[stream] + output.dropped
        self._at[stream] = begin + len(output.data)
        if output.dropped and begin > self._skip[stream]:
            self._rest[stream] = b""
            yield stream, f"… {output.dropped} bytes were dropped", begin
        data = output.data[max(0, self._skip[stream] - begin) :]
        held = self._rest[stream] + data
        end = self._at[stream] - len(held)
        at = 0
        # The text is scanned by position instead of being cut line by line: one piece of output may hold
        # sixty thousand empty lines.
        while at < len(held):
            if not (cut := held.find(b"\n", at) + 1) and len(held) - at < MAX_LINE_BYTES:
                break
            after = min(cut or len(held), at + MAX_LINE_BYTES)
            yield stream, _text(held[at:after]), end + after
            at = after
        self._rest[stream] = held[at:]

    def finish(self) -> Iterator[tuple[Stream, str, int]]:
        for stream, held in self._rest.items():
            if held:
                yield stream, _text(held), self._at[stream]


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "replace").rstrip("\r\n")


def _written(line: Line) -> bytes:
    kept: dict[str, object] = {
        "n": line.number,
        "t": line.at.isoformat(),
        "r": line.run,
        "s": line.stream,
        "x": line.text,
    }
    if line.process_id:
        kept |= {"p": line.process_id, "o": line.offset}
    return (json.dumps(kept) + "\n").encode()


def _stands(lines: Iterable[bytes]) -> Iterator[tuple[re.Match[bytes], re.Match[bytes] | None]]:
    """Reads only the numbers of each line, without parsing it as JSON: the server does this for every log
    when it starts.
    """
    for raw in lines:
        if (head := _HEAD.match(raw)) is not None and raw.endswith(b"}"):
            yield head, _STAND.search(raw)


def _beyond(raw: bytes, number: int) -> int:
    """Returns where in the file the first line with a greater number begins. Lines are in order."""
    low, high = 0, len(raw)
    while low < high:
        begin = raw.rfind(b"\n", 0, (low + high) // 2) + 1
        at, head = begin, _HEAD.match(raw, begin)
        while head is None and at < high:
            # A crash cut this one short; the next one tells where we are.
            at = (raw.find(b"\n", at) + 1) or high
            head = _HEAD.match(raw, at)
        if head is None or at >= high or int(head[1]) > number:
            high = begin
        else:
            low = (raw.find(b"\n", at) + 1) or len(raw)
    return low


def _few(raw: bytes, at: int) -> list[Line]:
    lines: list[Line] = []
    end = at + _BATCH_BYTES
    while at < len(raw) and len(lines) < _BATCH and (at < end or not lines):
        cut = (raw.find(b"\n", at) + 1) or len(raw)
        if (line := _parsed(raw[at:cut])) is not None:
            lines.append(line)
        at = cut
    return lines


def _parsed(raw: bytes) -> Line | None:
    """Returns None for a line that a crash cut short."""
    try:
        kept = json.loads(raw)
        return Line(
            number=kept["n"],
            at=datetime.fromisoformat(kept["t"]),
            run=kept["r"],
            stream=kept["s"],
            text=kept["x"],
            process_id=kept.get("p", ""),
            offset=kept.get("o", 0),
        )
    except (ValueError, KeyError, TypeError):
        return None
