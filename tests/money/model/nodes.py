"""A Bitcoin node, a Litecoin index and a Stacks relay on loopback, spoken to over real HTTP.

The node is that of a main network: whoever has it read the past waits longer than anybody does, and while it
reads it refuses everything else. The relay has words of its own, and forgets. The index is down when it is
told to, and its chain reorganises.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from typing import Any

from embit.bip32 import HDKey

from sandboxer.payments.chains.addresses import NETWORKS, script_of
from sandboxer.payments.stacks.transactions import StacksKey
from testchains.http_face import Answer, HttpFace

XPUB = HDKey.from_seed(b"a model's own seed".ljust(64, b".")).to_public().to_base58()
GENESIS = "0f9188f13cb7b2c71f2a335e3a4fc328bf5beb436012afca590b1a11466e2206"
SCAN_IN_PROGRESS = 'Scan already in progress, use action "abort" or "status"'
HONEST, SCANNING, DOWN = "honest", "scanning", "down"
BROADCAST, FORGOTTEN, CONFIRMED = "broadcast", "forgotten", "confirmed"


class CoreNode:
    """Bitcoin Core's RPC, as much of it as a shop asks. `past`: calls that read the chain; `regained`: how
    often addresses were imported with their past."""

    def __init__(self) -> None:
        self.manner = HONEST
        self.known: set[str] = set()
        self.past: list[str] = []
        self.regained = 0
        self._face = HttpFace(self._route)

    @property
    def settings(self) -> dict[str, Any]:
        return {"BTC": {"rpc": self._face.url, "network": "regtest", "xpub": XPUB}}

    def close(self) -> None:
        self._face.stop()

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        asked = json.loads(body)
        if self.manner == DOWN:
            return 503, "text/plain", b"Loading block index"
        many = asked if isinstance(asked, list) else [asked]
        said = [self._one(each) for each in many]
        reported = said if isinstance(asked, list) else said[0]
        status = 500 if isinstance(reported, dict) and reported["error"] else 200
        return status, "application/json", json.dumps(reported).encode()

    def _one(self, call: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {"result": None, "error": None, "id": call.get("id")}
        name, params = call["method"], call.get("params") or []
        if name in ("scantxoutset", "rescanblockchain", "importaddress"):
            self.past.append(name)
            answer["error"] = {"code": -8, "message": SCAN_IN_PROGRESS}
        else:
            answer["result"] = self._say(name, params)
        return answer

    def _say(self, name: str, params: list[Any]) -> Any:
        match name:
            case "getwalletinfo":
                reads = {"duration": 40, "progress": 0.25}
                return {"walletname": "w", "scanning": reads if self.manner == SCANNING else False}
            case "getaddressinfo":
                return {"address": params[0], "iswatchonly": params[0] in self.known}
            case "getdescriptorinfo":
                return {"descriptor": params[0]}
            case "importdescriptors":
                self.regained += any(each["timestamp"] != "now" for each in params[0])
                self.known |= {each["label"] for each in params[0]}
                return [{"success": True} for _ in params[0]]
            case "getblockcount":
                return 100
            case "getblockhash":
                return GENESIS
            case "getblockheader":
                return {"height": 0, "time": 0}
            case "getblockchaininfo":
                return {"blocks": 100, "headers": 100, "bestblockhash": GENESIS, "chain": "regtest"}
        return []


@dataclass
class _Output:
    txid: str
    script: str
    amount: int
    # None: it waits for a block.
    height: int | None = None


class LitecoinIndex:
    """An Esplora server over a chain that the driver makes: who was paid, in which block."""

    def __init__(self) -> None:
        self.is_down = False
        self._outputs: list[_Output] = []
        self._blocks = [NETWORKS["LTC", "regtest"].genesis[0]]
        self.mine(100)
        self._face = HttpFace(self._route)

    @property
    def settings(self) -> dict[str, Any]:
        return {"LTC": {"esplora": self._face.url, "network": "regtest", "xpub": XPUB}}

    def close(self) -> None:
        self._face.stop()

    def pay(self, address: str, amount: int) -> None:
        script = script_of(address, NETWORKS["LTC", "regtest"]).hex()
        self._outputs.append(_Output(secrets.token_hex(32), script, amount))

    def mine(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            self._blocks.append(secrets.token_hex(32))
            for one in self._outputs:
                one.height = len(self._blocks) - 1 if one.height is None else one.height

    def reorganise(self, depth: int) -> None:
        """The last blocks lose; what was in them waits for the next."""
        first = len(self._blocks) - depth
        del self._blocks[first:]
        for one in self._outputs:
            one.height = None if one.height is not None and one.height >= first else one.height
        self.mine(depth + 1)

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        if self.is_down:
            return 503, "text/plain", b"starting"
        match path.strip("/").split("/"):
            case ["blocks", "tip", "height"]:
                return _text(str(len(self._blocks) - 1))
            case ["blocks", "tip", "hash"]:
                return _text(self._blocks[-1])
            case ["block-height", height]:
                return _text(self._blocks[int(height)])
            case ["block", _]:
                return _json(200, {"timestamp": 0})
            case ["address", address]:
                found = self._of(address)
                mined = sum(one.height is not None for one in found)
                stats = {
                    "chain_stats": {"tx_count": mined},
                    "mempool_stats": {"tx_count": len(found) - mined},
                }
                return _json(200, stats)
            case ["address", address, "txs"]:
                return _json(200, [self._shown(one) for one in self._of(address)])
        return _json(200, [])

    def _of(self, address: str) -> list[_Output]:
        script = script_of(address, NETWORKS["LTC", "regtest"]).hex()
        return [one for one in self._outputs if one.script == script]

    def _shown(self, one: _Output) -> dict[str, Any]:
        status: dict[str, Any] = {"confirmed": one.height is not None}
        if one.height is not None:
            status |= {"block_height": one.height, "block_hash": self._blocks[one.height]}
        paid = {"scriptpubkey": one.script, "value": one.amount}
        return {"txid": one.txid, "status": status, "vout": [paid]}


class StacksRelay:
    """A sponsor relay without a node beside it. `truth`: which payments are in a block, by transaction id."""

    def __init__(self) -> None:
        self.manner = HONEST
        self.truth: dict[str, bool] = {}
        self.asked = 0
        self._face = HttpFace(self._route)
        self.owner = StacksKey.from_hex("5e" * 32).address(mainnet=False)

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "network": "stacks:2147483648",
            "pay_to": self.owner,
            "facilitator": self._face.url,
            "assets": [{"code": "STX", "id": "STX"}],
        }

    def close(self) -> None:
        self._face.stop()

    def mine(self) -> None:
        self.truth = dict.fromkeys(self.truth, True)

    def _route(self, method: str, path: str, body: bytes) -> Answer:
        if path == "/settle":
            txid = secrets.token_hex(32)
            self.truth[txid] = False
            return _json(200, {"success": True, "transaction": txid, "payer": "", "paymentId": "pay_" + txid})
        if path.startswith("/settle/status/"):
            self.asked += 1
            return self._status(path.rpartition("/")[2])
        return _json(200, {"isValid": True})

    def _status(self, txid: str) -> Answer:
        if self.manner == FORGOTTEN or txid not in self.truth:
            return _json(404, {"error": "Transaction not found"})
        if self.truth[txid]:
            return _json(200, {"status": CONFIRMED, "txid": txid, "blockHeight": 7})
        return _json(200, {"status": BROADCAST, "txid": txid})


def _text(said: str) -> Answer:
    return 200, "text/plain", said.encode()


def _json(status: int, said: object) -> Answer:
    return status, "application/json", json.dumps(said).encode()
