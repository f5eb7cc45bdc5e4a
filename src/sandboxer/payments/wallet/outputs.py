"""Spending on the Bitcoin family with keys of our own: for agents that pay, and for an operator's refunds."""

from __future__ import annotations

from dataclasses import dataclass

from embit.bip32 import HDKey

from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.payments.chains.addresses import script_of
from sandboxer.payments.chains.contract import Deposit, Funds
from sandboxer.payments.chains.transactions import FEES, choose, signed, txid_of
from sandboxer.payments.wallet.seeds import SpendingKey

# Addresses an agent's wallet looks at: it hands out the first few, and change has one.
_OWN = 5
_CHANGE = (1, 0)
# How far a refund looks for the key of a deposit's address.
_FURTHEST = 20_000


@dataclass(frozen=True)
class Prepared:
    """Signed and not sent: record the txid, then broadcast; sending the same again is harmless."""

    txid: str
    raw: bytes
    fee: int


class OutputSpender:
    """`Spender` for BTC, LTC and DOGE."""

    def __init__(self, funds: Funds, key: SpendingKey) -> None:
        self.code = funds.code
        self._funds = funds
        self._key = key
        self._places: dict[str, tuple[int, int]] = {}
        self._searched = 0
        for place in ((0, index) for index in range(_OWN)):
            self._learn(*place)
        self._learn(*_CHANGE)

    async def balance(self) -> int:
        return sum(coin.amount for coin in await self._coins())

    async def send(self, address: str, amount: int, *, spend: Deposit | None = None) -> str:
        return await self.broadcast(await self.prepare(address, amount, spend=spend))

    async def prepare(self, address: str, amount: int, *, spend: Deposit | None = None) -> Prepared:
        network, rule = self._key.network, FEES[self.code]
        target = script_of(address, network)
        coins = [await self._checked(spend)] if spend else await self._coins()
        spending = choose(coins, amount, self._key.kind, await self._funds.fee_rate(), rule)
        outputs = [(target, amount)]
        if spending.change:
            outputs.append((self._key.script(*_CHANGE), spending.change))
        raw = signed(spending, outputs, self._key.kind, self._key_of)
        return Prepared(txid_of(raw), raw, spending.fee)

    async def broadcast(self, prepared: Prepared) -> str:
        await self._funds.broadcast(prepared.raw)
        return prepared.txid

    async def depth(self, txid: str) -> int | None:
        return await self._funds.depth(txid)

    def learn(self, index: int) -> None:
        """An address it may have to spend from; without this it is searched for."""
        self._learn(0, index)

    async def _coins(self) -> list[Deposit]:
        return await self._funds.unspent(list(self._places)[: _OWN + 1])

    async def _checked(self, deposit: Deposit) -> Deposit:
        """The output as the node knows it now: still there, unspent, and of the same worth."""
        if deposit.chain != self.code:
            raise Conflict(why=f"a deposit of {deposit.chain} cannot be spent in {self.code}")
        for coin in await self._funds.unspent([deposit.address]):
            if coin.id == deposit.id and coin.amount == deposit.amount:
                return coin
        raise Conflict(why=f"the output {deposit.id} is spent or gone")

    def _key_of(self, coin: Deposit) -> HDKey:
        while coin.address not in self._places:
            if self._searched >= _FURTHEST:
                raise NotFound(what="key of the address", id=coin.address)
            self._learn(0, self._searched)
            self._searched += 1
        return self._key.child(*self._places[coin.address])

    def _learn(self, branch: int, index: int) -> None:
        self._places.setdefault(self._key.address(index, branch=branch), (branch, index))
