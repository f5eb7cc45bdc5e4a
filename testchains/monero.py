"""Monero in regtest (Debian's `monero`): a daemon that mines on demand, and a wallet server for the bank and
for the shop, each with its own folder."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from testchains.processes import Child, free_port

DAEMON, WALLET = Path("/usr/bin/monerod"), Path("/usr/bin/monero-wallet-rpc")
# A coinbase ripens after sixty blocks, and a ring wants sixteen ripe outputs to choose from.
_RIPE = 90
_RELAYED_WITHIN_S = 5.0
# Blocks asked for in one call: on a busy machine each takes a second, and a call has a limit.
_AT_ONCE = 10

# Worth nothing anywhere but here: fixed, so that mining can begin before the bank's wallet is open.
_BANK_SEED = (
    "fizzle poaching agony nephew gather igloo badge kept occur yoyo tawny nineteen unrest"
    " skirting menu bested vixen certain rebel amply sixteen yanks onslaught ostrich kept"
)
_BANK_ADDRESS = (
    "461nRJUL7Tm8QkSo8SS3r5if61cXGrUpggdgkLhKLWVQ5f3eykX2F41Ait68ewoVFFAuv2rzcXE9j5VaDpti3iL86sj9XYa"
)


def why_not() -> str | None:
    return None if DAEMON.exists() and WALLET.exists() else "no monero here: scripts/system-packages test"


class MoneroError(RuntimeError):
    pass


class Endpoint:
    """JSON-RPC of the daemon or a wallet server, blocking."""

    def __init__(self, url: str, auth: httpx.Auth | None = None) -> None:
        self.url = url
        self._http = httpx.Client(base_url=url, auth=auth, timeout=90, trust_env=False)

    def call(self, method: str, **params: Any) -> Any:
        body = {"jsonrpc": "2.0", "id": "0", "method": method, "params": params}
        answer = self._http.post("/json_rpc", json=body).json()
        if "error" in answer:
            raise MoneroError(f"{method}: {answer['error']}")
        return answer["result"]

    def post(self, path: str, **body: Any) -> Any:
        answer = self._http.post(path, json=body).json()
        if answer.get("status") != "OK":
            raise MoneroError(f"{path}: {json.dumps(answer)[:300]}")
        return answer

    def answers(self) -> bool:
        try:
            self.call("get_version")
        except (httpx.HTTPError, MoneroError, ValueError):
            return False
        return True


class Monero:
    """`wallet_url` is the shop's wallet server (what the product talks to; digest login), `daemon_url` the
    daemon's RPC."""

    code = "XMR"
    network = "regtest"  # which uses mainnet's address bytes
    bank_address = _BANK_ADDRESS

    user, password = "sandboxer", "regtest"

    def __init__(self, *, guests: Sequence[str] = (), ports: Mapping[str, int] | None = None) -> None:
        """`guests` get a wallet server of their own each, with an empty wallet; see `url`.

        `ports`: of daemon, bank, shop and guests, for who must know them before anything listens there.
        """
        self._folder = Path(tempfile.mkdtemp(prefix="monero-"))
        self._children: list[Child] = []
        self._guests = tuple(guests)
        self._ports = ports or {name: free_port() for name in ("daemon", "bank", "shop", *guests)}
        self.daemon_url, self.wallet_url = self.url("daemon"), self.url("shop")
        self._daemon, self._bank = Endpoint(self.daemon_url), Endpoint(self.url("bank"))
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        """A few seconds of work each, so side by side; the processes start here, in the thread that lives
        longest, because they die with it."""
        daemon = self._start_daemon()
        daemon.wait_until(self._daemon.answers)
        guests = {name: self._start_wallet(name) for name in self._guests}
        bank, shop = self._start_wallet("bank"), self._start_wallet("shop")
        with ThreadPoolExecutor() as pool:
            jobs = [
                pool.submit(self.mine, _RIPE),
                pool.submit(self._restore_bank, bank),
                pool.submit(self._create, shop, "shop"),
                *(pool.submit(self._create, child, name) for name, child in guests.items()),
            ]
        for job in jobs:
            job.result()

    def _restore_bank(self, child: Child) -> None:
        child.wait_until(self._bank.answers)
        self._bank.call("restore_deterministic_wallet", filename="bank", password="", seed=_BANK_SEED)

    def _create(self, child: Child, name: str) -> None:
        server = self.server(name)
        child.wait_until(server.answers)
        server.call("create_wallet", filename=name, password="", language="English")

    def server(self, name: str) -> Endpoint:
        """The wallet server of the shop or of a guest."""
        return Endpoint(self.url(name), httpx.DigestAuth(self.user, self.password))

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self._ports[name]}"

    def _start_daemon(self) -> Child:
        command = (
            *(str(DAEMON), "--regtest", "--offline", "--fixed-difficulty", "1", "--non-interactive"),
            *("--data-dir", str(self._folder / "chain"), "--rpc-bind-port", str(self._ports["daemon"])),
            *("--p2p-bind-port", str(free_port()), "--no-zmq", "--disable-dns-checkpoints"),
            *("--check-updates", "disabled", "--db-sync-mode", "fastest", "--max-concurrency", "2"),
        )
        return self._start(command, "daemon")

    def _start(self, command: tuple[str, ...], name: str) -> Child:
        child = Child(command, self._folder / f"{name}.log")
        self._children.append(child)
        return child

    def _start_wallet(self, name: str) -> Child:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        login = () if name == "bank" else ("--rpc-login", f"{self.user}:{self.password}")
        command = (
            *(str(WALLET), "--daemon-address", self.daemon_url, "--trusted-daemon"),
            *(
                "--non-interactive",
                "--no-dns",
                "--shared-ringdb-dir",
                str(folder),
                "--wallet-dir",
                str(folder),
            ),
            *(
                "--rpc-bind-port",
                str(self._ports[name]),
                "--log-file",
                str(folder / "log"),
                "--log-level",
                "0",
            ),
            *(login or ("--disable-rpc-login",)),
        )
        return self._start(command, name)

    def __enter__(self) -> Monero:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._children:
            with suppress(ProcessLookupError):
                self.resume()
        for child in reversed(self._children):
            child.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def pause(self) -> None:
        """The shop's wallet server hangs until `resume`: it takes connections and answers none. (Ending and
        starting it costs ten seconds.)"""
        os.kill(self._children[-1].pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._children[-1].pid, signal.SIGCONT)

    def height(self) -> int:
        """Of the best block (Monero itself counts blocks, which is one more)."""
        return int(self._daemon.call("get_block_count")["count"]) - 1

    def mine(self, blocks: int = 1) -> None:
        self._await_relaying()
        for begun in range(0, blocks, _AT_ONCE):
            some = min(_AT_ONCE, blocks - begun)
            self._daemon.call("generateblocks", amount_of_blocks=some, wallet_address=_BANK_ADDRESS)

    def _await_relaying(self) -> None:
        """A block takes only transactions that were passed on, which happens a moment after they came in."""
        deadline = time.monotonic() + _RELAYED_WITHIN_S
        while time.monotonic() < deadline:
            waiting = self._daemon.post("/get_transaction_pool").get("transactions", ())
            if all(each["relayed"] or each["do_not_relay"] for each in waiting):
                return
            time.sleep(0.02)

    def pay(self, address: str, amount: int, *, unlock_time: int = 0) -> str:
        return self.pay_many([(address, amount)], unlock_time=unlock_time)

    def pay_many(self, outputs: list[tuple[str, int]], *, unlock_time: int = 0) -> str:
        self._bank.call("refresh")
        destinations = [{"address": address, "amount": amount} for address, amount in outputs]
        sent = self._bank.call("transfer", destinations=destinations, unlock_time=unlock_time)
        return str(sent["tx_hash"])

    def received(self, txid: str) -> int:
        """What the bank got by this transaction, mined or in the pool."""
        self._bank.call("refresh")
        found = self._bank.call("get_transfers", **{"in": True, "pool": True})
        rows = (*found.get("in", ()), *found.get("pool", ()))
        return sum(row["amount"] for row in rows if row["txid"] == txid)

    def drop(self, txid: str) -> None:
        """The pool forgets a transaction, as if it had never been relayed."""
        self._daemon.call("flush_txpool", txids=[txid])

    def reorg(self, depth: int) -> None:
        """The last `depth` blocks lose against `depth + 1` empty ones; their transactions wait again."""
        heights = range(self.height() - depth + 1, self.height() + 1)
        txids = [
            txid
            for height in heights
            for txid in self._daemon.call("get_block", height=height).get("tx_hashes", ())
        ]
        raw = self._daemon.post("/get_transactions", txs_hashes=txids)["txs"] if txids else []
        waiting = self._daemon.post("/get_transaction_pool").get("transactions", [])
        self._daemon.post("/pop_blocks", nblocks=depth)
        self._daemon.call("flush_txpool")
        self.mine(depth + 1)
        for each in (*(one["as_hex"] for one in raw), *(one["tx_blob"] for one in waiting)):
            self._daemon.post("/send_raw_transaction", tx_as_hex=each, do_not_relay=False)
