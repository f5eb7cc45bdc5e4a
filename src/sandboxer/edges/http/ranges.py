"""Byte ranges of a file (RFC 9110, section 14): pure."""

from __future__ import annotations

import re
from dataclasses import dataclass

_FORM = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")


@dataclass(frozen=True, slots=True)
class Span:
    offset: int
    length: int
    # False: the whole file.
    is_part: bool

    def content_range(self, size: int) -> str:
        return f"bytes {self.offset}-{self.offset + self.length - 1}/{size}"


class NotSatisfiable(Exception):
    """The range begins after the end of the file."""


def span(header: str | None, size: int) -> Span:
    """What to send. A range we do not understand (several at once, other units) means the whole file."""
    whole = Span(0, size, False)
    match = _FORM.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return whole
    first, last = match.groups()
    if first == "":
        length = min(int(last), size)
        if length == 0:
            raise NotSatisfiable
        return Span(size - length, length, True)
    start = int(first)
    end = size - 1 if last == "" else min(int(last), size - 1)
    if last != "" and int(last) < start:
        return whole
    if start >= size:
        raise NotSatisfiable
    return Span(start, end - start + 1, True)
