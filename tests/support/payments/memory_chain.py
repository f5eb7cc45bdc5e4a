"""A chain in memory that can do what no honest node can be made to do on demand: lie, forget, fail at a call.

It proves no payment; the tests on real nodes do. It is for what they cannot stage, and for ten thousand
random histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sandboxer.kernel.errors import AddressUsed, ChainUnavailable
from sandboxer.payments.chains.contract import Deposit


@dataclass
class _Paid:
    txid: str
    address: str
    amount: int
    # None: in the mempool.
    height: int | None = None
    is_conflicted: bool = False
    is_unlocked: bool = True


@dataclass
class MemoryChain:
    code: str = "LTC"
    height: int = 100
    paid: dict[str, _Paid] = field(default_factory=dict)
    is_down: bool = False
    # Claims of the node that are not true, by txid.
    lies: dict[str, dict[str, object]] = field(default_factory=dict)
    asked: list[int] = field(default_factory=list)
    used: set[int] = field(default_factory=set)

    async def tip(self) -> int:
        self._answer()
        return self.height

    async def fresh_address(self, index: int) -> str:
        self._answer()
        if index in self.used:
            raise AddressUsed(chain=self.code, index=index)
        return f"address{index}"

    async def deposits(self, addresses: Sequence[str]) -> list[Deposit]:
        self._answer()
        self.asked.append(len(addresses))
        wanted = set(addresses)
        return [self._shown(one) for one in self.paid.values() if one.address in wanted]

    def check_address(self, text: str) -> None:
        return None

    def payment_uri(self, address: str, amount: int, label: str) -> str:
        return f"memory:{address}?amount={amount}"

    def pay(self, address: str, amount: int, *, is_unlocked: bool = True) -> str:
        txid = f"{len(self.paid):064x}"
        self.paid[txid] = _Paid(txid, address, amount, is_unlocked=is_unlocked)
        return txid

    def mine(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            self.height += 1
            for one in self.paid.values():
                if one.height is None and not one.is_conflicted:
                    one.height = self.height

    def reorg(self, depth: int, *, keep: bool = True) -> None:
        """The last blocks lose; their payments wait again, or are double-spent."""
        for one in self.paid.values():
            if one.height is not None and one.height > self.height - depth:
                one.height = None
                one.is_conflicted = not keep
        self.height += 1

    def double_spend(self, txid: str) -> None:
        if self.paid[txid].height is None:
            self.paid[txid].is_conflicted = True

    def _shown(self, one: _Paid) -> Deposit:
        depth = 0 if one.height is None else self.height - one.height + 1
        shown = Deposit(
            chain=self.code,
            txid=one.txid,
            output="0",
            address=one.address,
            amount=one.amount,
            confirmations=depth,
            block=None if one.height is None else f"{one.height:064x}",
            height=one.height,
            unlocked=one.is_unlocked,
            conflicted=one.is_conflicted,
        )
        return replace(shown, **self.lies.get(one.txid, {}))  # type: ignore[arg-type]

    def _answer(self) -> None:
        if self.is_down:
            raise ChainUnavailable(chain=self.code, why="a test took it down")
