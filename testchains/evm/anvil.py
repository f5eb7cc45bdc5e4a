"""Starts anvil (a pinned npm package, installed once into a cache) with the test dollar deployed.

The token was compiled once by `solcjs --optimize` from TestDollar.sol; its ABI and code are kept beside it,
so that no compiler is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from eth_account import Account
from web3 import HTTPProvider, Web3

from testchains.processes import Child, free_port

HERE = Path(__file__).parent
CHAIN_ID = 31337
NETWORK = f"eip155:{CHAIN_ID}"
# The keys of anvil's well-known test mnemonic; each has ten thousand ether, none of them real.
Account.enable_unaudited_hdwallet_features()
_MNEMONIC = "test test test test test test test test test test test junk"
KEYS = tuple(
    "0x" + bytes(Account.from_mnemonic(_MNEMONIC, account_path=f"m/44'/60'/0'/0/{n}").key).hex()
    for n in range(10)
)
DEPLOYER_KEY = KEYS[9]


def why_no_anvil() -> str | None:
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    return f"{' and '.join(missing)} not installed" if missing else None


def address_of(key: str) -> str:
    return str(Account.from_key(key).address)


class Anvil:
    """A chain that mines a block for each transaction, unless told otherwise."""

    network = NETWORK

    def __init__(self, url: str) -> None:
        self.url = url
        self.web3 = Web3(HTTPProvider(url))
        artefact = json.loads((HERE / "TestDollar.json").read_text())
        factory = self.web3.eth.contract(abi=artefact["abi"], bytecode=artefact["bytecode"])
        deployer = address_of(DEPLOYER_KEY)
        receipt = self._wait(factory.constructor().transact({"from": deployer}))
        self.dollar = self.web3.eth.contract(address=receipt["contractAddress"], abi=artefact["abi"])

    @property
    def asset(self) -> str:
        return str(self.dollar.address)

    def fund(self, address: str, atomic: int) -> None:
        """Give somebody test dollars, in millionths."""
        minted = self.dollar.functions.mint(Web3.to_checksum_address(address), atomic)
        self._wait(minted.transact({"from": address_of(DEPLOYER_KEY)}))

    def new_wallet(self, atomic: int = 0) -> str:
        """The private key of a wallet nobody has seen before, with test dollars in it."""
        wallet = Account.create()
        if atomic:
            self.fund(wallet.address, atomic)
        return "0x" + bytes(wallet.key).hex()

    def balance(self, address: str) -> int:
        return int(self.dollar.functions.balanceOf(Web3.to_checksum_address(address)).call())

    def mine(self, blocks: int = 1) -> None:
        self.call("anvil_mine", [hex(blocks)])

    def pause(self) -> None:
        """No more blocks by themselves: transactions wait in the pool."""
        self.call("evm_setAutomine", [False])

    def resume(self) -> None:
        self.call("evm_setAutomine", [True])
        self.mine()

    def advance(self, seconds: int) -> None:
        self.call("evm_increaseTime", [seconds])
        self.mine()

    def snapshot(self) -> str:
        return str(self.call("evm_snapshot", []))

    def revert(self, snapshot: str) -> None:
        """Back to a snapshot: what came after never happened, as in a reorganisation."""
        self.call("evm_revert", [snapshot])

    def call(self, method: str, params: list[Any]) -> Any:
        question = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        answer = httpx.post(self.url, json=question, timeout=30).json()
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _wait(self, txid: Any) -> Any:
        return self.web3.eth.wait_for_transaction_receipt(txid, poll_latency=0.01)


@contextmanager
def running_anvil(folder: Path) -> Iterator[Anvil]:
    """A fresh chain with its log in `folder`; gone when the block ends."""
    port = free_port()
    command = [str(_installed()), "--port", str(port), "--chain-id", str(CHAIN_ID), "--silent"]
    child = Child(command, folder / "anvil.log")
    try:
        url = f"http://127.0.0.1:{port}"
        child.wait_until(lambda: _answers(url))
        yield Anvil(url)
    finally:
        child.stop()


def _answers(url: str) -> bool:
    question = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
    try:
        return httpx.post(url, json=question, timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def _installed() -> Path:
    """The program itself (not the script that npm puts before it), from a cache named after the versions."""
    lock_text = (HERE / "package-lock.json").read_bytes()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sandboxer-testchains"
    home = cache / f"evm-{hashlib.sha256(lock_text).hexdigest()[:16]}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not _binaries(home):
            for name in ("package.json", "package-lock.json"):
                shutil.copy(HERE / name, home / name)
            quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
            subprocess.run(["npm", "ci", *quiet], cwd=home, check=True, stdout=subprocess.DEVNULL)
    return _binaries(home)[0]


def _binaries(home: Path) -> list[Path]:
    return sorted(home.glob("node_modules/@foundry-rs/anvil-*/bin/anvil"))
