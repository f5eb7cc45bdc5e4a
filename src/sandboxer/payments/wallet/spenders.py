"""Spending on the Bitcoin family with keys of our own: for agents that pay, and for an operator's refunds.

Spending Monero through a wallet server that holds the keys: for agents that pay, and for refunds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx
from embit.bip32 import HDKey

from sandboxer.kernel.errors import ChainUnavailable, Conflict, NotFound
from sandboxer.payments.chains.addresses import check_monero_address, script_of
from sandboxer.payments.chains.contract import Deposit, Funds
from sandboxer.payments.chains.transactions import FEES, choose, signed, txid_of
from sandboxer.payments.chains.transport import TIMEOUT, JsonRpc, NodeError, Reader, Wire
from sandboxer.payments.wallet.seeds import SpendingKey

# Addresses an agent's wallet looks at: it hands out the first few, and change has one.
_OWN = 5
_CHANGE = (1, 0)
# How far a refund looks for the key of a deposit's address.
_FURTHEST = 20_000
# Of wallet_rpc_server_error_codes.h: no transaction possible, not enough money, not enough unlocked money,
# no or wrong address.
_REFUSED = frozenset({-2, -4, -16, -17, -19, -20, -37, -38})
_NO_DAEMON = -38
_WRONG_TXID = -8


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


class MoneroSpender:
    """`Spender` over monero-wallet-rpc. A transaction is made first and relayed then, so that its txid can be
    written down in between: nothing else makes a lost answer harmless, as no two are alike."""

    code = "XMR"

    def __init__(
        self,
        url: str,
        *,
        user: str | None = None,
        password: str | None = None,
        account: int = 0,
        network: str = "mainnet",
        timeout: httpx.Timeout | None = None,
    ) -> None:
        auth = httpx.DigestAuth(user, password or "") if user else None
        self._wire = Wire(self.code, url, auth=auth, timeout=timeout or TIMEOUT)
        self._rpc = JsonRpc(self._wire, "/json_rpc")
        self._read = Reader(self.code)
        self._account = account
        self._network = network

    async def close(self) -> None:
        await self._wire.close()

    async def address(self) -> str:
        answer = await self._ask("get_address", account_index=self._account, address_index=[0])
        return self._read.text(answer.get("address"), "address")

    async def balance(self) -> int:
        await self._ask("refresh")
        answer = await self._ask("get_balance", account_index=self._account)
        return self._read.integer(answer.get("unlocked_balance"), "unlocked_balance")

    async def send(self, address: str, amount: int, *, spend: Deposit | None = None) -> str:
        return await self.broadcast(await self.prepare(address, amount, spend=spend))

    async def prepare(self, address: str, amount: int, *, spend: Deposit | None = None) -> Prepared:
        check_monero_address(address, self._network)
        await self._ask("refresh")
        answer = await self._ask(
            "transfer",
            destinations=[{"address": address, "amount": amount}],
            account_index=self._account,
            do_not_relay=True,
            get_tx_metadata=True,
            **({"subaddr_indices": [self._subaddress(spend)]} if spend else {}),
        )
        return Prepared(
            txid=self._read.hash(answer.get("tx_hash"), "tx_hash"),
            raw=_bytes(self._read, answer.get("tx_metadata")),
            fee=self._read.integer(answer.get("fee"), "fee"),
        )

    async def broadcast(self, prepared: Prepared) -> str:
        answer = await self._ask("relay_tx", hex=prepared.raw.hex())
        if answer.get("tx_hash") != prepared.txid:
            raise self._read.nonsense("another transaction was relayed than the one prepared")
        return prepared.txid

    async def depth(self, txid: str) -> int | None:
        await self._ask("refresh")
        try:
            answer = await self._rpc.call(
                "get_transfer_by_txid", {"txid": txid, "account_index": self._account}
            )
        except NodeError as error:
            if error.code == _WRONG_TXID:
                return None
            raise ChainUnavailable(chain=self.code, why=str(error)) from None
        transfer = self._read.object(self._read.object(answer).get("transfer"))
        # The network gave up on it, or dropped it.
        if transfer.get("type") == "failed":
            return None
        return self._read.integer(transfer.get("confirmations", 0), "confirmations")

    def learn(self, index: int) -> None:
        """The wallet server knows its own addresses."""

    def _subaddress(self, deposit: Deposit) -> int:
        """An invoice's subaddress has that invoice's money alone: to spend only from there is to spend it."""
        account, _, minor = deposit.output.partition("/")
        if deposit.chain != self.code or account != str(self._account) or not minor.isdigit():
            raise Conflict(why=f"{deposit.id} is not a deposit of this wallet")
        return int(minor)

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        try:
            return self._read.object(await self._rpc.call(method, params))
        except NodeError as error:
            if error.code in _REFUSED and error.code != _NO_DAEMON:
                raise Conflict(why=f"the Monero wallet refuses: {error}") from None
            raise ChainUnavailable(chain=self.code, why=str(error)) from None


def _bytes(read: Reader, value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise read.nonsense("a transaction that is not hex") from None
