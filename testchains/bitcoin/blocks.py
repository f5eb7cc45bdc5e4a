"""Laying blocks for regtest: coinbase with height and witness commitment, merkle root, a nonce by trial."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import sha256

from embit.script import Script, Witness
from embit.transaction import Transaction, TransactionInput, TransactionOutput

_BITS = 0x207FFFFF
_TARGET = 0x7FFFFF << (8 * (0x20 - 3))
_VERSION = 0x20000000
_HALVING = 150
_SUBSIDY = 50 * 10**8
_RESERVED = bytes(32)


def double_sha(data: bytes) -> bytes:
    return sha256(sha256(data).digest()).digest()


def subsidy(height: int) -> int:
    return _SUBSIDY >> (height // _HALVING)


def merkle_root(hashes: Sequence[bytes]) -> bytes:
    level = list(hashes)
    while len(level) > 1:
        if len(level) % 2:
            level.append(level[-1])
        level = [double_sha(level[i] + level[i + 1]) for i in range(0, len(level), 2)]
    return level[0]


def coinbase(height: int, reward: int, script: bytes, salt: bytes, txs: Sequence[Transaction]) -> Transaction:
    """`salt` makes two blocks of one height differ, as two miners' would."""
    commitment = double_sha(merkle_root([_RESERVED, *(_wtxid(tx) for tx in txs)]) + _RESERVED)
    pays = [
        TransactionOutput(reward, Script(script)),
        TransactionOutput(0, Script(b"\x6a\x24\xaa\x21\xa9\xed" + commitment)),
    ]
    entry = TransactionInput(
        bytes(32), 0xFFFFFFFF, Script(_pushed_height(height) + bytes([len(salt)]) + salt)
    )
    entry.witness = Witness([_RESERVED])
    return Transaction(vin=[entry], vout=pays)


def _pushed_height(height: int) -> bytes:
    if height <= 16:
        return bytes([0x50 + height])
    raw = height.to_bytes(height.bit_length() // 8 + 1, "little")
    return bytes([len(raw)]) + raw


def _wtxid(tx: Transaction) -> bytes:
    return double_sha(tx.serialize())


def mined(previous: bytes, time: int, txs: Sequence[Transaction]) -> tuple[bytes, bytes]:
    """(hash as the chain counts it, the whole block). Hashes here are in the byte order of the wire."""
    root = merkle_root([tx.txid()[::-1] for tx in txs])
    head = struct.pack("<i32s32sII", _VERSION, previous, root, time, _BITS)
    nonce = 0
    while int.from_bytes(double_sha(head + struct.pack("<I", nonce)), "little") > _TARGET:
        nonce += 1
    header = head + struct.pack("<I", nonce)
    assert len(txs) < 0xFD, "the count is written as one byte"
    return double_sha(header), header + bytes([len(txs)]) + b"".join(tx.serialize() for tx in txs)
