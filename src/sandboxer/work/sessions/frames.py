"""Frames are what a keeper says, parsed into values. Every line is untrusted: one that does not have the
right form is an error with a reason, and one that is too long never gets here (`Lines`).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sandboxer.kernel.errors import GuestMisbehaved

# Enough for a picture of 4 MiB in base 64 inside JSON.
MOST_LINE = 6 << 20
MOST_MIMES = 16
MOST_TEXT = 256 * 1024


@dataclass(frozen=True, slots=True)
class Ready:
    """The interpreter accepts cells."""


@dataclass(frozen=True, slots=True)
class Begun:
    n: int
    code: str
    note: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Printed:
    n: int
    # 1: stdout, 2: stderr.
    stream: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Shown:
    n: int
    mimes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    message: str
    traceback: str


@dataclass(frozen=True, slots=True)
class Done:
    n: int
    status: int
    fault: Fault | None
    # How many bytes of stdout and stderr were dropped beyond the limit.
    lost: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Gone:
    """The interpreter has ended, with its exit code or minus the signal; `why` is what it said before it was
    ready.
    """

    code: int
    why: str


@dataclass(frozen=True, slots=True)
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

    def feed(self, data: bytes, dropped: int) -> list[bytes]:
        if dropped:
            self.held.clear()
            self.in_step = False
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
        raw = json.loads(line)
        return _frame(raw["t"], raw)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        raise GuestMisbehaved(why="a session's line is not in its form") from None


def _frame(kind: object, raw: Mapping[str, Any]) -> Frame | None:
    match kind:
        case "out":
            stream = _number(raw["s"], most=2)
            return Printed(_number(raw["n"]), max(1, stream), base64.b64decode(raw["d"], validate=True))
        case "result":
            return Shown(_number(raw["n"]), _mimes(raw["m"]))
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
    return {_text(name)[:100]: str(value) for name, value in raw.items()}


def _fault(raw: Mapping[str, Any]) -> Fault:
    name = _text(raw.get("name", "Error"))[:200]
    return Fault(name, _text(raw.get("message", "")), _text(raw.get("traceback", "")))


def _number(value: object, *, most: int = 2**53) -> int:
    if not isinstance(value, int) or not 0 <= value <= most:
        raise ValueError("not a number that can be")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")
    return value[:MOST_TEXT]
