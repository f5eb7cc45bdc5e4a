"""Clarity values and post-conditions are read from bytes; writing values is `identity.signatures.stacks`.

Only the one canonical spelling is read (tuple keys in order and once), so that what is written again has the
same bytes and thus the same transaction id. A post-condition says what a transaction may move at most; if it
moves anything else, the chain undoes it.
"""

from __future__ import annotations

import re
from enum import IntEnum

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
from sandboxer.kernel.values import brief_value_class

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
        if (value := self.number(1)) not in allowed:
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
        if (version := self.number(1)) >= _VERSIONS:
            raise malformed(f"address version {version} does not exist")
        return StacksAddress(version, self.take(20))

    def end(self) -> None:
        if self.left:
            raise malformed(f"{self.left} bytes follow its end")


# As deep as Clarity's own types may be.
MAX_DEPTH = 32


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
        if (name := cursor.name(CLARITY_NAME)) <= last:
            raise malformed("tuple keys are not in order, or one is there twice")
        fields[name] = read_value(cursor, depth + 1)
        last = name
    return fields


def _text(raw: bytes, encoding: str) -> str:
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError:
        raise malformed(f"a string is not {encoding}") from None


class Mode(IntEnum):
    """The order is @stacks/transactions'; some libraries have allow and deny the wrong way round."""

    ALLOW = 1
    DENY = 2
    ORIGINATOR = 3


class Sent(IntEnum):
    EQUAL = 1
    GREATER = 2
    GREATER_EQUAL = 3
    LESS = 4
    LESS_EQUAL = 5


class Nft(IntEnum):
    SENDS = 16
    KEEPS = 17
    MAY_SEND = 18


@brief_value_class
class Origin:
    """Whoever signed as origin."""


Principal = Origin | StacksAddress | ContractPrincipal


@brief_value_class
class AssetName:
    """A token: the contract that made it and its name there."""

    contract: ContractPrincipal
    name: str

    @property
    def text(self) -> str:
        return f"{self.contract.text}::{self.name}"


@brief_value_class
class StxCondition:
    principal: Principal
    code: Sent
    amount: int


@brief_value_class
class FtCondition:
    principal: Principal
    asset: AssetName
    code: Sent
    amount: int


@brief_value_class
class NftCondition:
    principal: Principal
    asset: AssetName
    value: Value
    code: Nft


PostCondition = StxCondition | FtCondition | NftCondition
SMALLEST = 1 + 1 + 1 + 8
_SENT = frozenset(Sent)
_NFT = frozenset(Nft)


def read_post_condition(cursor: Cursor) -> PostCondition:
    if (kind := cursor.number(1)) not in (0, 1, 2):
        raise malformed(f"post-condition type {kind} is not known")
    principal = _read_principal(cursor)
    if kind == 0:
        return StxCondition(principal, Sent(cursor.one_of(_SENT, "condition code")), cursor.number(8))
    asset = _read_asset(cursor)
    if kind == 1:
        return FtCondition(principal, asset, Sent(cursor.one_of(_SENT, "condition code")), cursor.number(8))
    value = read_value(cursor)
    return NftCondition(principal, asset, value, Nft(cursor.one_of(_NFT, "condition code")))


def write_post_condition(condition: PostCondition) -> bytes:
    principal = _write_principal(condition.principal)
    match condition:
        case StxCondition(code=code, amount=amount):
            return b"\x00" + principal + bytes([code]) + amount.to_bytes(8, "big")
        case FtCondition(asset=asset, code=sent, amount=amount):
            return b"\x01" + principal + _write_asset(asset) + bytes([sent]) + amount.to_bytes(8, "big")
        case NftCondition(asset=asset, value=value, code=nft):
            return b"\x02" + principal + _write_asset(asset) + serialize(value) + bytes([nft])


def counted_name(name: str) -> bytes:
    raw = name.encode("ascii")
    return bytes([len(raw)]) + raw


def raw_address(address: StacksAddress) -> bytes:
    return bytes([address.version]) + address.hash160


def _read_principal(cursor: Cursor) -> Principal:
    match cursor.number(1):
        case 1:
            return Origin()
        case 2:
            return cursor.address()
        case 3:
            return ContractPrincipal(cursor.address(), cursor.name(CONTRACT_NAME))
        case kind:
            raise malformed(f"post-condition principal {kind} is not known")


def _write_principal(principal: Principal) -> bytes:
    match principal:
        case Origin():
            return b"\x01"
        case StacksAddress():
            return b"\x02" + raw_address(principal)
        case ContractPrincipal(address=address, name=name):
            return b"\x03" + raw_address(address) + counted_name(name)


def _read_asset(cursor: Cursor) -> AssetName:
    contract = ContractPrincipal(cursor.address(), cursor.name(CONTRACT_NAME))
    return AssetName(contract, cursor.name(CLARITY_NAME))


def _write_asset(asset: AssetName) -> bytes:
    contract = asset.contract
    return raw_address(contract.address) + counted_name(contract.name) + counted_name(asset.name)
