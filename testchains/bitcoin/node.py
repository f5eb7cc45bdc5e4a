"""A node for tests around Bitcoin Core's validation library: miner, mempool, bank, reorganisations.

Core's code accepts or refuses every block (`process_block`) and every input that enters the mempool
(`ScriptPubkey.verify`); fees, maturity, replacement and dust are checked here as Core's policy does.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pbk
from embit import ec
from embit.script import Script, Witness, script_sig_p2pkh, witness_p2wpkh
from embit.transaction import SIGHASH, Transaction, TransactionInput, TransactionOutput
from pbk.script import PrecomputedTransactionData

from sandboxer.payments.chains.addresses import Network, script_of
from sandboxer.payments.chains.bitcoin import Script as Kind
from sandboxer.payments.chains.bitcoin import output_script
from testchains.bitcoin.blocks import coinbase, mined, subsidy
from testchains.bitcoin.book import Block, Book, Coin, coins_of, spends, txid_of

_GENESIS_TIME = 1296688602
_GENESIS = "0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206"
_RIPE = 100
_FEE = 1000
_DUST = 294
_REPLACEABLE = 0xFFFFFFFD


class Rejected(RuntimeError):
    """The mempool does not take it; the text is Core's word for why."""


class KernelNode:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.code = network.coin
        self.lock = threading.RLock()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{network.coin.lower()}-"))
        self._kernel = pbk.load_chainman(self._folder, pbk.ChainType.REGTEST)
        self.book = Book([Block(_GENESIS, 0, _GENESIS_TIME, ())])
        self.mempool: dict[str, Transaction] = {}
        # A wallet remembers what it saw, also after something else took its place.
        self.replaced: dict[str, Transaction] = {}
        self._key = ec.PrivateKey(b"\x42" * 32)
        kind = Kind.P2PKH if network.hrp is None else Kind.P2WPKH
        self._home = output_script(self._key.get_public_key().sec(), kind)
        self.mine(_RIPE + 10)

    def close(self) -> None:
        del self._kernel
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- blocks --------------------------------------------------------------------------------------------

    def height(self) -> int:
        return self.book.blocks[-1].height

    def mine(self, blocks: int = 1) -> None:
        with self.lock:
            for _ in range(blocks):
                self._lay(list(self.mempool.values()))

    def _lay(self, txs: Sequence[Transaction]) -> None:
        parent = self.book.blocks[-1]
        height = parent.height + 1
        fees = sum(self._fee(tx) for tx in txs)
        first = coinbase(height, subsidy(height) + fees, self._home, os.urandom(8), txs)
        # Of today: a wallet may be told to read the chain from a moment on.
        moment = max(parent.time + 1, int(time.time()))
        hashed, raw = mined(bytes.fromhex(parent.hash)[::-1], moment, [first, *txs])
        self._kernel.process_block(pbk.Block(raw))
        self.book.append(Block(hashed[::-1].hex(), height, moment, (first, *txs)))
        for tx in txs:
            self.mempool.pop(txid_of(tx), None)

    def reorg(self, depth: int) -> None:
        """The last `depth` blocks lose against `depth + 1` empty ones; their transactions wait again."""
        with self.lock:
            lost = self.book.blocks[len(self.book.blocks) - depth :]
            self.book = self.book.without_last(depth)
            for _ in range(depth + 1):
                self._lay([])
            waiting = [*(tx for block in lost for tx in block.txs[1:]), *self.mempool.values()]
            self.mempool = {}
            for tx in waiting:
                self._take_back(tx)
        best = str(self._kernel.get_active_chain().block_tree_entries[self.height()].block_hash)
        assert best == self.book.blocks[-1].hash, "Core's code follows the longer branch as we do"

    def _take_back(self, tx: Transaction) -> None:
        try:
            self.submit(tx.serialize())
        except Rejected:
            # Spends the reward of a block that is no more.
            self.replaced[txid_of(tx)] = tx

    # -- mempool -------------------------------------------------------------------------------------------

    def submit(self, raw: bytes) -> str:
        try:
            tx = Transaction.parse(raw)
            judged = pbk.Transaction(raw)
        except Exception as error:  # the parsers raise whatever went wrong first
            raise Rejected("TX decode failed") from error
        with self.lock:
            txid = txid_of(tx)
            if txid in self.mempool:
                return txid
            if txid in self.book.height_of:
                raise Rejected("Transaction already in block chain")
            spent = [self._spendable(*point) for point in spends(tx)]
            fee = sum(coin.value for coin in spent) - sum(out.value for out in tx.vout)
            self._check(tx, fee)
            _judge(judged, spent)
            self._evict_rivals(tx, fee)
            self.mempool[txid] = tx
            self.replaced.pop(txid, None)
            return txid

    def _spendable(self, txid: str, vout: int) -> Coin:
        coin = self.coin(txid, vout)
        if coin is None or (txid, vout) in self.book.spent_by:
            raise Rejected("bad-txns-inputs-missingorspent")
        if coin.coinbase and self.height() + 1 - (coin.height or 0) < _RIPE:
            raise Rejected("bad-txns-premature-spend-of-coinbase")
        return coin

    def coin(self, txid: str, vout: int) -> Coin | None:
        """An output of the chain or the mempool, spent or not."""
        found = self.book.coins.get((txid, vout))
        if found is None and txid in self.mempool:
            outs = list(coins_of(self.mempool[txid], None))
            found = outs[vout] if vout < len(outs) else None
        return found

    def _check(self, tx: Transaction, fee: int) -> None:
        if fee < 0:
            raise Rejected("bad-txns-in-belowout")
        if fee < len(tx.serialize()) // 4:
            raise Rejected("min relay fee not met")
        if any(out.value < _DUST and out.script_pubkey.data[:1] != b"\x6a" for out in tx.vout):
            raise Rejected("dust")

    def _evict_rivals(self, tx: Transaction, fee: int) -> None:
        points = set(spends(tx))
        rivals = [txid for txid, other in self.mempool.items() if points & set(spends(other))]
        if rivals and fee <= sum(self._fee(self.mempool[txid]) for txid in rivals):
            raise Rejected("insufficient fee, rejecting replacement")
        for txid in rivals:
            self._evict(txid)

    def _evict(self, txid: str) -> None:
        """It and whatever spends from it."""
        for child in [each for each, tx in self.mempool.items() if any(p[0] == txid for p in spends(tx))]:
            self._evict(child)
        if txid in self.mempool:
            self.replaced[txid] = self.mempool.pop(txid)

    def _fee(self, tx: Transaction) -> int:
        coins = [self.coin(*point) for point in spends(tx)]
        return sum(coin.value for coin in coins if coin) - sum(out.value for out in tx.vout)

    # -- the bank ------------------------------------------------------------------------------------------

    def pay(self, address: str, amount: int) -> str:
        return self.pay_many([(address, amount)])

    def pay_many(self, outputs: list[tuple[str, int]]) -> str:
        with self.lock:
            wanted = sum(amount for _, amount in outputs) + _FEE
            coins, found = [], 0
            for coin in self._purse():
                coins.append(coin)
                found += coin.value
                if found >= wanted:
                    break
            pays = [(script_of(address, self.network), amount) for address, amount in outputs]
            if found - wanted >= _DUST:
                pays.append((self._home, found - wanted))
            return self.submit(self._signed(coins, pays))

    def double_spend(self, txid: str) -> str:
        """Replace a payment in the mempool by one back to the bank, with a higher fee."""
        with self.lock:
            coins = [self._spendable(*point) for point in spends(self.mempool[txid])]
            worth = sum(coin.value for coin in coins) - 20 * _FEE
            return self.submit(self._signed(coins, [(self._home, worth)]))

    def _purse(self) -> list[Coin]:
        spent = {point for tx in self.mempool.values() for point in spends(tx)}
        return [
            coin
            for coin in self.book.by_script[self._home]
            if (coin.txid, coin.vout) not in spent
            and (coin.txid, coin.vout) not in self.book.spent_by
            and not (coin.coinbase and self.height() + 1 - (coin.height or 0) < _RIPE)
        ]

    def _signed(self, coins: Sequence[Coin], pays: Sequence[tuple[bytes, int]]) -> bytes:
        tx = Transaction(
            vin=[TransactionInput(bytes.fromhex(c.txid), c.vout, sequence=_REPLACEABLE) for c in coins],
            vout=[TransactionOutput(amount, Script(script)) for script, amount in pays],
        )
        public = self._key.get_public_key()
        for place, coin in enumerate(coins):
            if self.network.hrp is None:
                digest = tx.sighash_legacy(place, Script(coin.script))
                tx.vin[place].script_sig = script_sig_p2pkh(self._key.sign(digest), public)
            else:
                code = Script(b"\x76\xa9\x14" + coin.script[2:] + b"\x88\xac")
                digest = tx.sighash_segwit(place, code, coin.value, SIGHASH.ALL)
                tx.vin[place].witness = Witness(witness_p2wpkh(self._key.sign(digest), public).items)
        return bytes(tx.serialize())


def _judge(tx: pbk.Transaction, spent: Sequence[Coin]) -> None:
    """Core's script interpreter on every input."""
    outs = [pbk.TransactionOutput(pbk.ScriptPubkey(coin.script), coin.value) for coin in spent]
    ahead = PrecomputedTransactionData(tx, outs)
    for place, coin in enumerate(spent):
        try:
            good = pbk.ScriptPubkey(coin.script).verify(
                coin.value, tx, ahead, place, pbk.ScriptVerificationFlags.ALL
            )
        except pbk.ScriptVerifyException as error:
            raise Rejected(f"mandatory-script-verify-flag-failed ({error})") from None
        if not good:
            raise Rejected("mandatory-script-verify-flag-failed")
