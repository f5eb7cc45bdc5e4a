"""What the faces answer from: blocks of the best branch, which output is where and who spent it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from embit.transaction import Transaction

OutPoint = tuple[str, int]


@dataclass(frozen=True)
class Block:
    hash: str
    height: int
    time: int
    txs: tuple[Transaction, ...]


@dataclass(frozen=True)
class Coin:
    txid: str
    vout: int
    script: bytes
    value: int
    # None: in the mempool.
    height: int | None
    coinbase: bool


def txid_of(tx: Transaction) -> str:
    return str(tx.txid().hex())


def spends(tx: Transaction) -> list[OutPoint]:
    return [(each.txid.hex(), each.vout) for each in tx.vin]


@dataclass
class Book:
    """Confirmed part only; the mempool lies over it."""

    blocks: list[Block] = field(default_factory=list)
    coins: dict[OutPoint, Coin] = field(default_factory=dict)
    spent_by: dict[OutPoint, str] = field(default_factory=dict)
    by_script: dict[bytes, list[Coin]] = field(default_factory=dict)
    height_of: dict[str, int] = field(default_factory=dict)
    tx: dict[str, Transaction] = field(default_factory=dict)

    def append(self, block: Block) -> None:
        self.blocks.append(block)
        for place, tx in enumerate(block.txs):
            txid = txid_of(tx)
            self.height_of[txid] = block.height
            self.tx[txid] = tx
            if place:
                for point in spends(tx):
                    self.spent_by[point] = txid
            for coin in coins_of(tx, block.height, coinbase=place == 0):
                self.coins[coin.txid, coin.vout] = coin
                self.by_script.setdefault(coin.script, []).append(coin)

    def without_last(self, count: int) -> Book:
        """Another book with that many blocks less, written anew: simpler than unwriting."""
        other = Book()
        for block in self.blocks[: len(self.blocks) - count]:
            other.append(block)
        return other

    def unspent(self, point: OutPoint) -> Coin | None:
        return None if point in self.spent_by else self.coins.get(point)


def coins_of(tx: Transaction, height: int | None, *, coinbase: bool = False) -> Iterator[Coin]:
    txid = txid_of(tx)
    for vout, out in enumerate(tx.vout):
        yield Coin(txid, vout, bytes(out.script_pubkey.data), out.value, height, coinbase)
