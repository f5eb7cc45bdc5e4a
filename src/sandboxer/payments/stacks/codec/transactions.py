"""A Stacks transaction: parsed whole or refused, and written back to the same bytes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from Cryptodome.Hash import SHA512

from sandboxer.identity.signatures.c32 import StacksAddress
from sandboxer.identity.signatures.clarity import ContractPrincipal, Value
from sandboxer.payments.stacks.codec.clarity import read_value, serialize
from sandboxer.payments.stacks.codec.cursor import CLARITY_NAME, CONTRACT_NAME, Cursor, malformed
from sandboxer.payments.stacks.codec.post_conditions import (
    SMALLEST,
    Mode,
    PostCondition,
    counted_name,
    raw_address,
    read_post_condition,
    write_post_condition,
)
from sandboxer.payments.stacks.codec.spending import SpendingCondition, read_condition, write_condition

# A transfer has some 350 bytes; a chain would take two megabytes, which no payment needs.
MAX_BYTES = 64 * 1024
MEMO_BYTES = 34
MAINNET_VERSION, TESTNET_VERSION = 0x00, 0x80
_HEX = re.compile(r"(0x)?((?:[0-9a-fA-F]{2})+)")
_STANDARD, _SPONSORED = 4, 5
_U64 = 2**64


class Anchor(IntEnum):
    ON_CHAIN = 1
    OFF_CHAIN = 2
    ANY = 3


@dataclass(frozen=True, slots=True)
class TokenTransfer:
    """Native STX."""

    recipient: StacksAddress | ContractPrincipal
    amount: int
    memo: bytes = bytes(MEMO_BYTES)


@dataclass(frozen=True, slots=True)
class ContractCall:
    contract: ContractPrincipal
    function: str
    arguments: tuple[Value, ...]


Payload = TokenTransfer | ContractCall


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    version: int
    chain_id: int
    origin: SpendingCondition
    sponsor: SpendingCondition | None
    mode: Mode
    post_conditions: tuple[PostCondition, ...]
    payload: Payload
    anchor: Anchor = Anchor.ANY

    @property
    def mainnet(self) -> bool:
        return self.version == MAINNET_VERSION

    @property
    def origin_address(self) -> str:
        return self.origin.address(mainnet=self.mainnet).text

    @property
    def sponsor_address(self) -> str | None:
        return None if self.sponsor is None else self.sponsor.address(mainnet=self.mainnet).text

    @property
    def txid(self) -> str:
        """Changes when a sponsor signs: never the identity of a payment that waits for one."""
        return sha512_256(write_transaction(self)).hex()


def sha512_256(data: bytes) -> bytes:
    return SHA512.new(data, truncate="256").digest()


def parse_hex(text: str) -> Transaction:
    if len(text) > 2 * MAX_BYTES + 2 or (found := _HEX.fullmatch(text)) is None:
        raise malformed("it is not hex, or too long")
    return parse_transaction(bytes.fromhex(found[2]))


def parse_transaction(raw: bytes) -> Transaction:
    """Raises InvalidRequest for everything but one whole transfer or contract call."""
    if len(raw) > MAX_BYTES:
        raise malformed("it is too long")
    cursor = Cursor(raw)
    version = cursor.one_of(frozenset({MAINNET_VERSION, TESTNET_VERSION}), "transaction version")
    chain_id = cursor.number(4)
    auth = cursor.one_of(frozenset({_STANDARD, _SPONSORED}), "authorization type")
    transaction = Transaction(
        version=version,
        chain_id=chain_id,
        origin=read_condition(cursor),
        sponsor=read_condition(cursor) if auth == _SPONSORED else None,
        anchor=Anchor(cursor.one_of(frozenset(Anchor), "anchor mode")),
        mode=Mode(cursor.one_of(frozenset(Mode), "post-condition mode")),
        post_conditions=_read_post_conditions(cursor),
        payload=_read_payload(cursor),
    )
    cursor.end()
    return transaction


def write_transaction(transaction: Transaction) -> bytes:
    conditions = transaction.post_conditions
    sponsor = transaction.sponsor
    return b"".join(
        (
            bytes([transaction.version]),
            transaction.chain_id.to_bytes(4, "big"),
            bytes([_STANDARD if sponsor is None else _SPONSORED]),
            write_condition(transaction.origin),
            b"" if sponsor is None else write_condition(sponsor),
            bytes([transaction.anchor, transaction.mode]),
            len(conditions).to_bytes(4, "big"),
            *(write_post_condition(condition) for condition in conditions),
            _write_payload(transaction.payload),
        )
    )


def _read_post_conditions(cursor: Cursor) -> tuple[PostCondition, ...]:
    count = cursor.count(smallest=SMALLEST, what="post-conditions")
    return tuple(read_post_condition(cursor) for _ in range(count))


def _read_payload(cursor: Cursor) -> Payload:
    match kind := cursor.number(1):
        case 0:
            recipient = read_value(cursor)
            if not isinstance(recipient, StacksAddress | ContractPrincipal):
                raise malformed("the recipient is not a principal")
            return TokenTransfer(recipient, cursor.number(8), cursor.take(MEMO_BYTES))
        case 2:
            contract = ContractPrincipal(cursor.address(), cursor.name(CONTRACT_NAME))
            function = cursor.name(CLARITY_NAME)
            count = cursor.count(smallest=1, what="arguments")
            return ContractCall(contract, function, tuple(read_value(cursor) for _ in range(count)))
    raise malformed(f"payload type {kind} is neither a transfer nor a contract call", "unsupported_payload")


def _write_payload(payload: Payload) -> bytes:
    match payload:
        case TokenTransfer(recipient=recipient, amount=amount, memo=memo):
            if not (0 <= amount < _U64 and len(memo) == MEMO_BYTES):
                raise malformed("an amount has 64 bits and a memo 34 bytes")
            return b"\x00" + serialize(recipient) + amount.to_bytes(8, "big") + memo
        case ContractCall(contract=contract, function=function, arguments=arguments):
            where = raw_address(contract.address) + counted_name(contract.name) + counted_name(function)
            values = b"".join(serialize(argument) for argument in arguments)
            return b"\x02" + where + len(arguments).to_bytes(4, "big") + values
