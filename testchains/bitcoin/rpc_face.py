"""The kernel node's Core-RPC face, in two dialects: Bitcoin Core's descriptor wallets, and the older tongue
of Dogecoin Core 1.14 (one wallet, `importmulti`, `validateaddress`, no scan). Only what a shop asks."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

from embit.descriptor.checksum import add_checksum

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.payments.chains.addresses import script_of
from testchains.bitcoin.book import coins_of, spends
from testchains.bitcoin.node import KernelNode, Rejected
from testchains.http_face import Answer

_UNIT = Decimal(10**8)
_CHAINS = {"mainnet": "main", "testnet": "test", "regtest": "regtest"}


class Refusal(Exception):
    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Wallet:
    """Watch-only: address -> first height at which the wallet looked for it."""

    def __init__(self) -> None:
        self.since: dict[str, int] = {}
        self.label: dict[str, str] = {}
        # What `getwalletinfo` says of a rescan: False, or how far it is.
        self.scanning: bool | dict[str, Any] = False


class RpcFace:
    def __init__(self, node: KernelNode, *, old: bool = False) -> None:
        self.node = node
        self._old = old
        self._wallets: dict[str, Wallet] = {"": Wallet()} if old else {}
        names = _NODE_CALLS + (_OLD_CALLS if old else _NEW_CALLS)
        self._calls: dict[str, Callable[..., Any]] = {name: getattr(self, f"_{name}") for name in names}
        self._wallet_calls = set(_WALLET_CALLS)

    def forget_wallets(self) -> None:
        """The wallet's file is lost."""
        self._wallets = {"": Wallet()} if self._old else {}

    def say_scanning(self, said: bool | dict[str, Any]) -> None:
        """What wallets answer when they are asked whether they read the chain."""
        for wallet in self._wallets.values():
            wallet.scanning = said

    def route(self, method: str, path: str, body: bytes) -> Answer:
        try:
            request = json.loads(body, parse_float=Decimal)
        except ValueError:
            return 500, "application/json", _json({"error": {"code": -32700, "message": "Parse error"}})
        wallet = path.removeprefix("/wallet/") if path.startswith("/wallet/") else ""
        with self.node.lock:
            if isinstance(request, list):
                return 200, "application/json", _json([self._one(each, wallet) for each in request])
            answer = self._one(request, wallet)
        return 500 if answer["error"] else 200, "application/json", _json(answer)

    def _one(self, request: dict[str, Any], wallet: str) -> dict[str, Any]:
        answer: dict[str, Any] = {"result": None, "error": None, "id": request.get("id")}
        try:
            call = self._calls.get(request["method"])
            if call is None:
                raise Refusal(-32601, "Method not found")
            params = request.get("params") or []
            if isinstance(params, dict):
                raise Refusal(-32602, "Params must be an array")
            if request["method"] in self._wallet_calls:
                if wallet not in self._wallets:
                    raise Refusal(-18, "Requested wallet does not exist or is not loaded")
                params = [self._wallets[wallet], *params]
            answer["result"] = call(*params)
        except Refusal as refusal:
            answer["error"] = {"code": refusal.code, "message": str(refusal)}
        except TypeError as error:
            answer["error"] = {"code": -1, "message": str(error)}
        return answer

    # -- node ----------------------------------------------------------------------------------------------

    def _getblockcount(self) -> int:
        return self.node.height()

    def _getblockchaininfo(self) -> dict[str, Any]:
        reported: dict[str, Any] = {
            "chain": _CHAINS[self.node.network.name],
            "blocks": self.node.height(),
            "headers": self.node.height(),
            "bestblockhash": self.node.book.blocks[-1].hash,
        }
        return reported if self._old else {**reported, "initialblockdownload": False}

    def _getblockhash(self, height: int) -> str:
        if height == 0:
            return self.node.network.genesis[0]
        if not 0 <= height <= self.node.height():
            raise Refusal(-8, "Block height out of range")
        return self.node.book.blocks[height].hash

    def _getblockheader(self, hash: str) -> dict[str, Any]:
        for block in self.node.book.blocks:
            if block.hash == hash:
                depth = self.node.height() - block.height + 1
                return {"hash": hash, "height": block.height, "confirmations": depth, "time": block.time}
        raise Refusal(-5, "Block not found")

    def _getmempoolentry(self, txid: str) -> dict[str, Any]:
        if txid not in self.node.mempool:
            raise Refusal(-5, "Transaction not in mempool")
        return {"vsize": len(self.node.mempool[txid].serialize())}

    def _sendrawtransaction(self, raw: str) -> str:
        try:
            return self.node.submit(bytes.fromhex(raw))
        except Rejected as why:
            raise Refusal(-26, str(why)) from None

    def _gettxout(self, txid: str, vout: int, include_mempool: bool = True) -> dict[str, Any] | None:
        coin = self.node.coin(txid, vout)
        spent = {point for tx in self.node.mempool.values() for point in spends(tx)}
        if coin is None or (txid, vout) in self.node.book.spent_by or (txid, vout) in spent:
            return None
        return {"value": coin.value / _UNIT, "confirmations": self._depth(coin.height)}

    def _estimatesmartfee(self, blocks: int) -> dict[str, Any]:
        return {"errors": ["Insufficient data or no feerate found"], "blocks": blocks}

    def _estimatefee(self, blocks: int) -> int:
        return -1

    def _getdescriptorinfo(self, descriptor: str) -> dict[str, Any]:
        return {"descriptor": add_checksum(descriptor), "issolvable": False}

    def _scantxoutset(self, action: str, descriptors: list[str]) -> dict[str, Any]:
        scripts = {script_of(each[5:-1], self.node.network) for each in descriptors}
        found = [
            {"txid": coin.txid, "vout": coin.vout, "amount": coin.value / _UNIT, "height": coin.height}
            for script in scripts
            for coin in self.node.book.by_script.get(script, ())
            if self.node.book.unspent((coin.txid, coin.vout))
        ]
        return {"success": True, "height": self.node.height(), "unspents": found}

    # -- wallets -------------------------------------------------------------------------------------------

    def _loadwallet(self, name: str) -> dict[str, Any]:
        if name not in self._wallets:
            raise Refusal(-18, "Wallet file verification failed. Path does not exist.")
        raise Refusal(-35, "Wallet is already loaded.")

    def _createwallet(self, name: str, disable_private_keys: bool, blank: bool) -> dict[str, Any]:
        if not disable_private_keys:
            raise Refusal(-4, "this node keeps no keys")
        self._wallets[name] = Wallet()
        return {"name": name, "warning": ""}

    def _importdescriptors(self, wallet: Wallet, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
        for each in requests:
            address = each["desc"].removeprefix("addr(").split(")")[0]
            self._watch(wallet, address, each["label"], self._height_at(each["timestamp"]))
        return [{"success": True} for _ in requests]

    def _importmulti(
        self, wallet: Wallet, requests: list[dict[str, Any]], options: dict[str, Any]
    ) -> list[dict[str, Any]]:
        for each in requests:
            since = self._height_at(each["timestamp"] if options.get("rescan", True) else "now")
            self._watch(wallet, each["scriptPubKey"]["address"], each["label"], since)
        return [{"success": True} for _ in requests]

    def _height_at(self, moment: int | str) -> int:
        """Where a wallet begins to read; like Core, two hours early."""
        if moment == "now":
            return self.node.height() + 1
        blocks = self.node.book.blocks
        return next((each.height for each in blocks if each.time >= int(moment) - 7200), len(blocks))

    def _watch(self, wallet: Wallet, address: str, label: str, since: int) -> None:
        wallet.since[address] = min(since, wallet.since.get(address, since))
        wallet.label[address] = label

    def _getwalletinfo(self, wallet: Wallet) -> dict[str, Any]:
        if self._old:
            return {"txcount": 0}
        kind = {"descriptors": True, "private_keys_enabled": False}
        return {"txcount": 0, **kind, "scanning": wallet.scanning}

    def _rescanblockchain(self, wallet: Wallet, start: int) -> dict[str, Any]:
        wallet.since = {address: min(since, start) for address, since in wallet.since.items()}
        return {"start_height": start, "stop_height": self.node.height()}

    def _getaddressinfo(self, wallet: Wallet, address: str) -> dict[str, Any]:
        try:
            script_of(address, self.node.network)
        except InvalidRequest:
            raise Refusal(-5, "Invalid address") from None
        # A descriptor wallet calls what it watches its own.
        return {"address": address, "ismine": address in wallet.since, "iswatchonly": False}

    def _validateaddress(self, wallet: Wallet, address: str) -> dict[str, Any]:
        try:
            script_of(address, self.node.network)
        except InvalidRequest:
            return {"isvalid": False}
        watched = address in wallet.since
        return {"isvalid": True, "address": address, "ismine": False, "iswatchonly": watched}

    def _listtransactions(
        self, wallet: Wallet, label: str, count: int, skip: int, watchonly: bool
    ) -> list[dict[str, Any]]:
        rows = [
            row
            for address in wallet.since
            if wallet.label[address] == label
            for row in self._rows(wallet, address)
        ]
        return rows[skip : skip + count]

    def _rows(self, wallet: Wallet, address: str) -> Iterator[dict[str, Any]]:
        node, script = self.node, script_of(address, self.node.network)
        for coin in node.book.by_script.get(script, ()):
            if (coin.height or 0) >= wallet.since[address]:
                yield {**_row(address, coin), **self._where(coin.height)}
        rivals = {
            txid: tx
            for txid, tx in node.replaced.items()
            if not any(p in node.book.spent_by for p in spends(tx))
        }
        for tx in (*node.mempool.values(), *rivals.values()):
            for coin in coins_of(tx, None):
                if coin.script == script:
                    yield {**_row(address, coin), "confirmations": 0, "trusted": False}

    def _where(self, height: int | None) -> dict[str, Any]:
        assert height is not None
        return {
            "confirmations": self._depth(height),
            "blockhash": self.node.book.blocks[height].hash,
            **({} if self._old else {"blockheight": height}),
        }

    def _listunspent(
        self, wallet: Wallet, least: int, most: int, addresses: list[str]
    ) -> list[dict[str, Any]]:
        spent = {point for tx in self.node.mempool.values() for point in spends(tx)}
        rows = []
        for address in addresses:
            for row in self._rows(wallet, address):
                point = (row["txid"], row["vout"])
                free = point not in spent and point not in self.node.book.spent_by
                if free and row["txid"] not in self.node.replaced and least <= row["confirmations"] <= most:
                    rows.append(row)
        return rows

    def _gettransaction(self, wallet: Wallet, txid: str, watchonly: bool) -> dict[str, Any]:
        node = self.node
        if txid in node.book.height_of:
            return {"txid": txid, **self._where(node.book.height_of[txid])}
        if txid in node.mempool or txid in node.replaced:
            return {"txid": txid, "confirmations": 0}
        raise Refusal(-5, "Invalid or non-wallet transaction id")

    def _depth(self, height: int | None) -> int:
        return 0 if height is None else self.node.height() - height + 1


_NODE_CALLS = (
    "getblockchaininfo",
    "getblockcount",
    "getblockhash",
    "getblockheader",
    "getmempoolentry",
    "sendrawtransaction",
    "gettxout",
)
_NEW_CALLS = (
    *("getdescriptorinfo", "scantxoutset", "loadwallet", "createwallet", "estimatesmartfee"),
    "gettransaction",
    *("importdescriptors", "rescanblockchain", "getaddressinfo", "listtransactions", "listunspent"),
    "getwalletinfo",
)
_OLD_CALLS = (
    *("importmulti", "getwalletinfo", "validateaddress", "listtransactions", "listunspent", "estimatefee"),
    "gettransaction",
)
_WALLET_CALLS = (
    *("importdescriptors", "rescanblockchain", "getaddressinfo", "listtransactions", "listunspent"),
    *("importmulti", "getwalletinfo", "validateaddress", "gettransaction"),
)


def _row(address: str, coin: Any) -> dict[str, Any]:
    return {
        "address": address,
        "category": "receive",
        "amount": coin.value / _UNIT,
        "txid": coin.txid,
        "vout": coin.vout,
    }


def _json(value: Any) -> bytes:
    """Amounts as Core writes them: a bare number with eight digits after the point."""
    text = json.dumps(value, default=lambda amount: f"@@{amount:.8f}@@")
    return text.replace('"@@', "").replace('@@"', "").encode()
