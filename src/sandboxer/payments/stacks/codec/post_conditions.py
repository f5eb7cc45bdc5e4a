"""Post-conditions: what a transaction may move at most, or the chain undoes it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from sandboxer.identity.signatures.stacks import ContractPrincipal, StacksAddress, Value
from sandboxer.payments.stacks.codec.clarity import (
    CLARITY_NAME,
    CONTRACT_NAME,
    Cursor,
    malformed,
    read_value,
    serialize,
)


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


@dataclass(frozen=True, slots=True)
class Origin:
    """Whoever signed as origin."""


Principal = Origin | StacksAddress | ContractPrincipal


@dataclass(frozen=True, slots=True)
class AssetName:
    """A token: the contract that made it and its name there."""

    contract: ContractPrincipal
    name: str

    @property
    def text(self) -> str:
        return f"{self.contract.text}::{self.name}"


@dataclass(frozen=True, slots=True)
class StxCondition:
    principal: Principal
    code: Sent
    amount: int


@dataclass(frozen=True, slots=True)
class FtCondition:
    principal: Principal
    asset: AssetName
    code: Sent
    amount: int


@dataclass(frozen=True, slots=True)
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
    kind = cursor.number(1)
    if kind not in (0, 1, 2):
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
