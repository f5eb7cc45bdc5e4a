"""The kernel node's Esplora face: the REST routes a shop and a wallet ask."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from embit.transaction import Transaction

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.chains.addresses import address_of, script_of
from testchains.bitcoin.book import Coin, coins_of, spends, txid_of
from testchains.bitcoin.node import KernelNode, Rejected
from testchains.http_face import Answer

PAGE = 25


class EsploraFace:
    def __init__(self, node: KernelNode) -> None:
        self.node = node
        self._routes: list[tuple[re.Pattern[str], Callable[..., Any]]] = [
            (re.compile(r"/blocks/tip/height"), lambda: str(self.node.height())),
            (re.compile(r"/blocks/tip/hash"), lambda: self.node.book.blocks[-1].hash),
            (re.compile(r"/block-height/(\d+)"), self._block_at),
            (re.compile(r"/block/(\w+)"), self._block),
            (re.compile(r"/address/(\w+)"), self._address),
            (re.compile(r"/address/(\w+)/txs"), self._address_txs),
            (re.compile(r"/address/(\w+)/txs/chain/(\w+)"), self._address_txs_after),
            (re.compile(r"/address/(\w+)/utxo"), self._unspent),
            (re.compile(r"/tx/(\w+)"), self._one),
            (re.compile(r"/fee-estimates"), lambda: {"2": 2.0, "6": 1.5}),
        ]

    def route(self, method: str, path: str, body: bytes) -> Answer:
        with self.node.lock:
            if method == "POST" and path == "/tx":
                return self._broadcast(body)
            for pattern, answer in self._routes:
                if found := pattern.fullmatch(path):
                    return self._answered(answer(*found.groups()))
        return 404, "text/plain", b"not found"

    def _answered(self, value: Any) -> Answer:
        if value is None:
            return 404, "text/plain", b"not found"
        if isinstance(value, str):
            return 200, "text/plain", value.encode()
        return 200, "application/json", json.dumps(value).encode()

    def _broadcast(self, body: bytes) -> Answer:
        try:
            return 200, "text/plain", self.node.submit(bytes.fromhex(body.decode())).encode()
        except (Rejected, ValueError) as why:
            return 400, "text/plain", f"sendrawtransaction RPC error: {why}".encode()

    def _block_at(self, height: str) -> str | None:
        if int(height) == 0:
            return self.node.network.genesis[0]
        return self.node.book.blocks[int(height)].hash if int(height) <= self.node.height() else None

    def _block(self, hash: str) -> dict[str, Any] | None:
        found = next((each for each in self.node.book.blocks if each.hash == hash), None)
        return found and {"id": hash, "height": found.height, "timestamp": found.time}

    def _address(self, address: str) -> dict[str, Any] | None:
        if (script := self._script(address)) is None:
            return None
        return {
            "address": address,
            "chain_stats": {"tx_count": len(self._confirmed(script))},
            "mempool_stats": {"tx_count": len(self._waiting(script))},
        }

    def _address_txs(self, address: str) -> list[dict[str, Any]] | None:
        if (script := self._script(address)) is None:
            return None
        return [*map(self._tx, self._waiting(script)), *map(self._tx, self._confirmed(script)[:PAGE])]

    def _address_txs_after(self, address: str, last: str) -> list[dict[str, Any]] | None:
        if (script := self._script(address)) is None:
            return None
        txs = self._confirmed(script)
        place = [txid_of(tx) for tx in txs].index(last)
        return [self._tx(tx) for tx in txs[place + 1 : place + 1 + PAGE]]

    def _unspent(self, address: str) -> list[dict[str, Any]] | None:
        if (script := self._script(address)) is None:
            return None
        spent = {point for tx in self.node.mempool.values() for point in spends(tx)}
        coins: list[Coin] = list(self.node.book.by_script.get(script, ()))
        for tx in self.node.mempool.values():
            coins += [coin for coin in coins_of(tx, None) if coin.script == script]
        return [
            {"txid": coin.txid, "vout": coin.vout, "value": coin.value, "status": self._status(coin.txid)}
            for coin in coins
            if (coin.txid, coin.vout) not in spent and (coin.txid, coin.vout) not in self.node.book.spent_by
        ]

    def _script(self, address: str) -> bytes | None:
        try:
            return script_of(address, self.node.network)
        except InvalidRequest:
            return None

    def _confirmed(self, script: bytes) -> list[Transaction]:
        """Newest first, as Esplora lists them: whatever pays the script or spends from it."""
        book = self.node.book
        touched = set()
        for coin in book.by_script.get(script, ()):
            touched |= {coin.txid, book.spent_by.get((coin.txid, coin.vout), coin.txid)}
        return [book.tx[txid] for txid in sorted(touched, key=lambda each: (-book.height_of[each], each))]

    def _waiting(self, script: bytes) -> list[Transaction]:
        ours = [(coin.txid, coin.vout) for coin in self.node.book.by_script.get(script, ())]
        return [
            tx
            for tx in self.node.mempool.values()
            if any(coin.script == script for coin in coins_of(tx, None)) or set(ours) & set(spends(tx))
        ]

    def _one(self, txid: str) -> dict[str, Any] | None:
        tx = self.node.book.tx.get(txid) or self.node.mempool.get(txid)
        return None if tx is None else self._tx(tx)

    def _tx(self, tx: Transaction) -> dict[str, Any]:
        outs = [
            {
                "scriptpubkey": coin.script.hex(),
                "scriptpubkey_address": address_of(coin.script, self.node.network),
                "value": coin.value,
            }
            for coin in coins_of(tx, None)
        ]
        return {"txid": txid_of(tx), "vout": outs, "status": self._status(txid_of(tx))}

    def _status(self, txid: str) -> dict[str, Any]:
        height = self.node.book.height_of.get(txid)
        if height is None:
            return {"confirmed": False}
        return {
            "confirmed": True,
            "block_height": height,
            "block_hash": self.node.book.blocks[height].hash,
        }
