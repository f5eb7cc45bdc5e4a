"""Clarity values out of bytes; writing them is `identity.signatures.clarity`.

Only the one canonical spelling is read (tuple keys in order and once), so that what is written again has
the same bytes and thus the same transaction id.
"""

from __future__ import annotations

import re

from sandboxer.identity.signatures.stacks import (
    Ascii,
    ContractPrincipal,
    Err,
    Int,
    Ok,
    Some,
    StacksAddress,
    UInt,
    Utf8,
    Value,
    serialize,
)
from sandboxer.kernel.errors import InvalidRequest

_VERSIONS = 32
CONTRACT_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,39}")
CLARITY_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_!?+<>=/*-]{0,127}|[-+=/*]|[<>]=?")


def malformed(why: str, reason: str = "malformed_transaction") -> InvalidRequest:
    return InvalidRequest(
        field="transaction",
        why=why,
        reason=reason,
        hint="Send the hex of a signed, sponsored, single-signer Stacks transfer.",
    )


class Cursor:
    """A place in some bytes; moves forward only."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._raw) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise malformed(f"it ends {count - self.left} bytes too early")
        self._at += count
        return self._raw[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def one_of(self, allowed: frozenset[int], what: str) -> int:
        value = self.number(1)
        if value not in allowed:
            raise malformed(f"{what} {value} is not known")
        return value

    def count(self, *, smallest: int, what: str) -> int:
        """A list's length, refused before anything is made when so many cannot follow."""
        count = self.number(4)
        if count * smallest > self.left:
            raise malformed(f"{count} {what} do not fit into what is left")
        return count

    def name(self, pattern: re.Pattern[str]) -> str:
        text = self.take(self.number(1)).decode("ascii", errors="replace")
        if pattern.fullmatch(text) is None:
            raise malformed("a name holds letters that names cannot have")
        return text

    def address(self) -> StacksAddress:
        version = self.number(1)
        if version >= _VERSIONS:
            raise malformed(f"address version {version} does not exist")
        return StacksAddress(version, self.take(20))

    def end(self) -> None:
        if self.left:
            raise malformed(f"{self.left} bytes follow its end")


# As deep as Clarity's own types may be.
MAX_DEPTH = 32
MAX_BYTES = 64 * 1024
__all__ = ["MAX_BYTES", "MAX_DEPTH", "deserialize", "read_value", "serialize"]


def deserialize(raw: bytes) -> Value:
    """One value and nothing after it; raises InvalidRequest for anything else."""
    if len(raw) > MAX_BYTES:
        raise malformed("the value is too large")
    cursor = Cursor(raw)
    value = read_value(cursor)
    cursor.end()
    return value


def read_value(cursor: Cursor, depth: int = 0) -> Value:
    if depth > MAX_DEPTH:
        raise malformed(f"values are nested deeper than {MAX_DEPTH}")
    match kind := cursor.number(1):
        case 0x00:
            return Int(int.from_bytes(cursor.take(16), "big", signed=True))
        case 0x01:
            return UInt(cursor.number(16))
        case 0x02:
            return cursor.take(cursor.number(4))
        case 0x03 | 0x04:
            return kind == 0x03
        case 0x05:
            return cursor.address()
        case 0x06:
            return ContractPrincipal(cursor.address(), cursor.name(CONTRACT_NAME))
        case 0x07:
            return Ok(read_value(cursor, depth + 1))
        case 0x08:
            return Err(read_value(cursor, depth + 1))
        case 0x09:
            return None
        case 0x0A:
            return Some(read_value(cursor, depth + 1))
        case 0x0B:
            items = cursor.count(smallest=1, what="list items")
            return tuple(read_value(cursor, depth + 1) for _ in range(items))
        case 0x0C:
            return _read_tuple(cursor, depth)
        case 0x0D:
            return Ascii(_text(cursor.take(cursor.number(4)), "ascii"))
        case 0x0E:
            return Utf8(_text(cursor.take(cursor.number(4)), "utf-8"))
    raise malformed(f"Clarity type {kind} is not known")


def _read_tuple(cursor: Cursor, depth: int) -> dict[str, Value]:
    fields: dict[str, Value] = {}
    last = ""
    for _ in range(cursor.count(smallest=3, what="tuple fields")):
        name = cursor.name(CLARITY_NAME)
        if name <= last:
            raise malformed("tuple keys are not in order, or one is there twice")
        fields[name] = read_value(cursor, depth + 1)
        last = name
    return fields


def _text(raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        raise malformed(f"a string is not {encoding}") from None
