"""Clarity values out of bytes; writing them is `identity.signatures.clarity`.

Only the one canonical spelling is read (tuple keys in order and once), so that what is written again has
the same bytes and thus the same transaction id.
"""

from __future__ import annotations

from sandboxer.identity.signatures.clarity import (
    Ascii,
    ContractPrincipal,
    Err,
    Int,
    Ok,
    Some,
    UInt,
    Utf8,
    Value,
    serialize,
)
from sandboxer.payments.stacks.codec.cursor import CLARITY_NAME, CONTRACT_NAME, Cursor, malformed

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
