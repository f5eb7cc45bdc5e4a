"""Litecoin Core in regtest (Debian's `litecoind`), with a bank wallet that owns the first coins."""

from __future__ import annotations

import shutil
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx

from testchains.core_client import CoreClient, RpcError
from testchains.processes import Child, free_port

# /usr/bin/litecoind is a script that writes into the home folder first.
BINARY = Path("/usr/lib/litecoin/litecoind")
_UNIT = Decimal(10**8)
_FEE = Decimal("0.0001")
# Extension blocks would begin at height 432 and want a first peg-in; the adapter does not know of them.
_NO_MWEB = "-vbparams=mweb:9999999998:9999999999"


def why_not() -> str | None:
    return None if BINARY.exists() else "no litecoind here: scripts/system-packages test"


class Litecoin:
    code = "LTC"
    network = "regtest"

    def __init__(self) -> None:
        self.user, self.password = "sandboxer", "regtest"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = Path(tempfile.mkdtemp(prefix="litecoin-"))
        self._child = self._start()
        self._node = CoreClient(self.url, self.user, self.password)
        try:
            self._child.wait_until(self._answers)
            self._node.call("createwallet", "bank")
            self._bank = CoreClient(self.url, self.user, self.password, "bank")
            self._home: str = self._bank.call("getnewaddress")
            # Coinbases ripen after a hundred blocks; a few ripe ones let payments follow each other quickly.
            self.mine(110)
        except BaseException:
            self.close()
            raise

    def _start(self) -> Child:
        options = (
            f"-datadir={self._folder}",
            f"-rpcuser={self.user}",
            f"-rpcpassword={self.password}",
            f"-rpcport={self.port}",
            *(
                "-regtest",
                "-server",
                "-listen=0",
                "-dnsseed=0",
                "-txindex=1",
                "-walletrbf=1",
                "-mempoolreplacement=1",
            ),
            *("-fallbackfee=0.001", "-printtoconsole=0", "-dbcache=16", "-rpcthreads=4", _NO_MWEB),
        )
        return Child((str(BINARY), *options), self._folder / "log")

    def _answers(self) -> bool:
        try:
            self._node.call("getblockcount")
        except (httpx.HTTPError, RpcError, ValueError):
            return False
        return True

    def __enter__(self) -> Litecoin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._child.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def pause(self) -> None:
        """The node is down: nothing listens until `resume`."""
        # On disk first: a node that is slow to end on a busy machine is killed, and its last blocks with it.
        self._node.call("gettxoutsetinfo")
        self._child.stop()

    def resume(self) -> None:
        self._child = self._start()
        self._child.wait_until(self._answers)
        self._node.call("loadwallet", "bank")

    def call(self, method: str, *params: Any) -> Any:
        """Whatever a test wants to ask the bank's wallet or its node."""
        return self._bank.call(method, *params)

    def height(self) -> int:
        return int(self._node.call("getblockcount"))

    def mine(self, blocks: int = 1) -> None:
        self._bank.call("generatetoaddress", blocks, self._home)

    def pay(self, address: str, amount: int) -> str:
        return str(self._bank.call("sendtoaddress", address, str(amount / _UNIT)))

    def pay_many(self, outputs: list[tuple[str, int]]) -> str:
        """One transaction with these outputs, which may repeat an address."""
        # Core's own calls refuse an address twice, so the second comes as a raw output script.
        total = sum(amount for _, amount in outputs) / _UNIT + _FEE
        coins, found = [], Decimal(0)
        for coin in self._bank.call("listunspent", 1):
            coins.append({"txid": coin["txid"], "vout": coin["vout"]})
            found += coin["amount"]
            if found >= total:
                break
        change = self._bank.call("getnewaddress")
        scripts = [(self._script(address), amount) for address, amount in outputs]
        scripts.append((self._script(change), int((found - total) * _UNIT)))
        return self._sign_and_send(_raw_transaction(coins, scripts))

    def double_spend(self, txid: str) -> str:
        """Replace a transaction in the mempool by one that pays the bank instead, with a higher fee."""
        old = self._bank.call("getrawtransaction", txid, True)
        coins = [{"txid": each["txid"], "vout": each["vout"]} for each in old["vin"]]
        worth = sum((Decimal(str(each["value"])) for each in old["vout"]), Decimal(0))
        script = self._script(self._home)
        return self._sign_and_send(_raw_transaction(coins, [(script, int((worth - 10 * _FEE) * _UNIT))]))

    def reorg(self, depth: int) -> None:
        """The last `depth` blocks lose against `depth + 1` empty ones; their transactions wait again."""
        lost = self._node.call("getblockhash", self.height() - depth + 1)
        self._node.call("invalidateblock", lost)
        # Another address, or the first block would be the invalidated one again, to the bit.
        elsewhere = self._bank.call("getnewaddress")
        for _ in range(depth + 1):
            self._node.call("generateblock", elsewhere, [])

    def _script(self, address: str) -> bytes:
        return bytes.fromhex(self._bank.call("getaddressinfo", address)["scriptPubKey"])

    def _sign_and_send(self, raw: bytes) -> str:
        signed = self._bank.call("signrawtransactionwithwallet", raw.hex())
        return str(self._bank.call("sendrawtransaction", signed["hex"], 0))


def _raw_transaction(coins: list[dict[str, Any]], outputs: list[tuple[bytes, int]]) -> bytes:
    """Unsigned and replaceable; counts stay below 253, so each is one byte."""
    parts = [b"\x02\x00\x00\x00", bytes([len(coins)])]
    for coin in coins:
        parts += [bytes.fromhex(coin["txid"])[::-1], coin["vout"].to_bytes(4, "little"), b"\x00"]
        parts.append(b"\xfd\xff\xff\xff")
    parts.append(bytes([len(outputs)]))
    for script, amount in outputs:
        parts += [amount.to_bytes(8, "little"), bytes([len(script)]), script]
    return b"".join([*parts, b"\x00\x00\x00\x00"])
