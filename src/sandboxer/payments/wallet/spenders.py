"""One seed gives every key an agent pays with, and spenders pay with them: for agents, and for refunds.

The seed is BIP 39 words, and each chain has its customary path. On the Bitcoin family we spend with keys of
our own; Monero's keys are in a wallet server.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from coincurve import PublicKey
from Cryptodome.Hash import keccak
from embit import bip39
from embit.bip32 import HDKey
from embit.hashes import hash160

from sandboxer.identity.signatures import stacks
from sandboxer.identity.signatures.wallets import checksummed
from sandboxer.kernel.errors import ChainUnavailable, Conflict, InvalidRequest, NotFound
from sandboxer.payments.chains.addresses import (
    MAINNET,
    Network,
    address_of,
    check_monero_address,
    network_of,
    script_of,
)
from sandboxer.payments.chains.bitcoin import FEES, Script, choose, output_script, signed, txid_of
from sandboxer.payments.chains.contract import Deposit, Funds
from sandboxer.payments.chains.transport import MoneroServer, NodeError, Reader

_EVM = "m/44h/60h/0h/0/0"
_STACKS = "m/44h/5757h/0h/0/0"
_COIN_TYPE = {"BTC": 0, "LTC": 2, "DOGE": 3}
_STACKS_VERSIONS = {True: 22, False: 26}


@dataclass(frozen=True)
class Seed:
    words: str

    def __post_init__(self) -> None:
        if not bip39.mnemonic_is_valid(self.words):
            raise InvalidRequest(field="words", why="these are not the words of a seed")

    def __repr__(self) -> str:
        return "Seed(…)"

    @property
    def root(self) -> HDKey:
        return HDKey.from_seed(bip39.mnemonic_to_seed(self.words))

    def evm_key(self) -> bytes:
        return self._key(_EVM)

    def evm_address(self) -> str:
        point = PublicKey(self.root.derive(_EVM).get_public_key().sec()).format(compressed=False)
        return checksummed("0x" + keccak.new(digest_bits=256, data=point[1:]).digest()[12:].hex())

    def stacks_key(self) -> bytes:
        return self._key(_STACKS)

    def stacks_address(self, *, mainnet: bool = True) -> str:
        public = self.root.derive(_STACKS).get_public_key().sec()
        return stacks.encode(_STACKS_VERSIONS[mainnet], bytes(hash160(public)))

    def account(self, coin: str, network: str = MAINNET) -> SpendingKey:
        """The account of a Bitcoin-family coin, with the keys that spend."""
        place = network_of(coin, network)
        kind = Script.P2PKH if place.hrp is None else Script.P2WPKH
        purpose = 44 if kind is Script.P2PKH else 84
        coin_type = _COIN_TYPE[coin] if network == MAINNET else 1
        return SpendingKey(self.root.derive(f"m/{purpose}h/{coin_type}h/0h"), place, kind)

    def _key(self, path: str) -> bytes:
        return bytes(self.root.derive(path).key.serialize())


def new_seed() -> Seed:
    return Seed(bip39.mnemonic_from_bytes(secrets.token_bytes(16)))


@dataclass(frozen=True)
class SpendingKey:
    """An account's private key. Branch 0 receives, branch 1 takes change."""

    key: HDKey
    network: Network
    kind: Script

    def __repr__(self) -> str:
        return f"SpendingKey({self.network.coin} {self.network.name})"

    def child(self, branch: int, index: int) -> HDKey:
        return self.key.derive([branch, index])

    def script(self, branch: int, index: int) -> bytes:
        return output_script(self.child(branch, index).get_public_key().sec(), self.kind)

    def address(self, index: int, *, branch: int = 0) -> str:
        address = address_of(self.script(branch, index), self.network)
        assert address is not None, "every kind of script here has an address"
        return address

    def xpub(self) -> str:
        """Return the extended public key for a server: it makes the same addresses and cannot spend."""
        return str(self.key.to_public().to_base58())


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
    """A signed transaction that is not sent.

    Record its txid, then broadcast; sending it twice is harmless.
    """

    txid: str
    raw: bytes
    fee: int


class OutputSpender:
    """Pays in BTC, LTC and DOGE."""

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
        """Learn the index of an address that it may have to spend from, so that it need not be searched."""
        self._learn(0, index)

    async def _coins(self) -> list[Deposit]:
        return await self._funds.unspent(list(self._places)[: _OWN + 1])

    async def _checked(self, deposit: Deposit) -> Deposit:
        """Return the output as the node knows it now: unspent and of the same amount. Raises Conflict."""
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


class MoneroSpender(MoneroServer):
    """Pays over monero-wallet-rpc. A transaction is made first and relayed then, so that its txid can be
    written down in between: nothing else makes a lost answer harmless, as no two are alike."""

    async def address(self) -> str:
        answer = await self._ask("get_address", account_index=self.account, address_index=[0])
        return self._read.text(answer.get("address"), "address")

    async def balance(self) -> int:
        await self._ask("refresh")
        answer = await self._ask("get_balance", account_index=self.account)
        return self._read.integer(answer.get("unlocked_balance"), "unlocked_balance")

    async def prepare(self, address: str, amount: int, *, spend: Deposit | None = None) -> Prepared:
        check_monero_address(address, self.network)
        await self._ask("refresh")
        answer = await self._ask(
            "transfer",
            destinations=[{"address": address, "amount": amount}],
            account_index=self.account,
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
            answer = await self._wallet.call(
                "get_transfer_by_txid", {"txid": txid, "account_index": self.account}
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
        """Return the subaddress of a deposit; an invoice's subaddress holds only that invoice's money."""
        account, _, minor = deposit.output.partition("/")
        if deposit.chain != self.code or account != str(self.account) or not minor.isdigit():
            raise Conflict(why=f"{deposit.id} is not a deposit of this wallet")
        return int(minor)

    async def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        try:
            return self._read.object(await self._wallet.call(method, params))
        except NodeError as error:
            if error.code in _REFUSED and error.code != _NO_DAEMON:
                raise Conflict(why=f"the Monero wallet refuses: {error}") from None
            raise ChainUnavailable(chain=self.code, why=str(error)) from None


def _bytes(read: Reader, value: Any) -> bytes:
    try:
        return bytes.fromhex(value)
    except (TypeError, ValueError):
        raise read.nonsense("a transaction that is not hex") from None
