"""Clarity values as bytes (SIP-005): what SIP-018 hashes and transactions carry. Reading is in payments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sandboxer.identity.signatures.c32 import StacksAddress
from sandboxer.kernel.errors import InvalidRequest


@dataclass(frozen=True, slots=True)
class UInt:
    value: int


@dataclass(frozen=True, slots=True)
class Int:
    value: int


@dataclass(frozen=True, slots=True)
class Ascii:
    value: str


@dataclass(frozen=True, slots=True)
class Utf8:
    value: str


@dataclass(frozen=True, slots=True)
class ContractPrincipal:
    address: StacksAddress
    name: str

    @property
    def text(self) -> str:
        return f"{self.address.text}.{self.name}"


@dataclass(frozen=True, slots=True)
class Some:
    value: Value


@dataclass(frozen=True, slots=True)
class Ok:
    value: Value


@dataclass(frozen=True, slots=True)
class Err:
    value: Value


# A Python tuple is a Clarity list, a mapping is a Clarity tuple, None is none; an address is a principal.
Value = (
    UInt
    | Int
    | Ascii
    | Utf8
    | bool
    | bytes
    | None
    | StacksAddress
    | ContractPrincipal
    | Some
    | Ok
    | Err
    | tuple["Value", ...]
    | Mapping[str, "Value"]
)
_LONGEST_NAME = 128
_LONGEST_CONTRACT_NAME = 40


def serialize(value: Value) -> bytes:
    """Raises InvalidRequest for what Clarity cannot say."""
    match value:
        case bool():
            return b"\x03" if value else b"\x04"
        case None:
            return b"\x09"
        case Int(value=number):
            return b"\x00" + _sixteen(number, signed=True)
        case UInt(value=number):
            return b"\x01" + _sixteen(number, signed=False)
        case bytes():
            return b"\x02" + _counted(value)
        case StacksAddress():
            return b"\x05" + _address(value)
        case ContractPrincipal(address=address, name=name):
            return b"\x06" + _address(address) + _named(name, _LONGEST_CONTRACT_NAME)
        case Ok(value=inner):
            return b"\x07" + serialize(inner)
        case Err(value=inner):
            return b"\x08" + serialize(inner)
        case Some(value=inner):
            return b"\x0a" + serialize(inner)
        case Ascii(value=text):
            return b"\x0d" + _counted(_ascii(text))
        case Utf8(value=text):
            return b"\x0e" + _counted(text.encode())
        case Mapping():
            return b"\x0c" + _tuple(value)
        case tuple():
            return b"\x0b" + len(value).to_bytes(4, "big") + b"".join(serialize(item) for item in value)
    raise InvalidRequest(field="message", why=f"Clarity has no value like {type(value).__name__}")


def _sixteen(number: int, *, signed: bool) -> bytes:
    try:
        return number.to_bytes(16, "big", signed=signed)
    except OverflowError:
        raise InvalidRequest(field="message", why="a number beyond 128 bits") from None


def _ascii(text: str) -> bytes:
    if not text.isascii():
        raise InvalidRequest(field="message", why="string-ascii holds ASCII only")
    return text.encode("ascii")


def _counted(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def _tuple(value: Mapping[str, Value]) -> bytes:
    """Keys in order, so that equal tuples have equal bytes."""
    parts = [len(value).to_bytes(4, "big")]
    for name in sorted(value):
        parts.append(_named(name, _LONGEST_NAME) + serialize(value[name]))
    return b"".join(parts)


def _named(name: str, longest: int) -> bytes:
    raw = _ascii(name)
    if not 0 < len(raw) <= longest:
        raise InvalidRequest(field="message", why=f"a name of 1 to {longest} letters is needed")
    return bytes([len(raw)]) + raw


def _address(address: StacksAddress) -> bytes:
    return bytes([address.version]) + address.hash160
