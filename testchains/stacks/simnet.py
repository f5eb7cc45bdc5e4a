"""The chain: node modules installed once into a cache by the committed lock file, one node process.

It keeps real balances under real contracts (simnet) and checks what simnet does not: signatures, nonces, fees
and post-conditions, by the reference library and not by our codec.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import httpx

from testchains.processes import Child, free_port

FOLDER = Path(__file__).with_name("node")
DEPLOYER = "ST1PQHQKV0RJXZFY1DGX8MNSNYVE3VGZJSRTPGZGM"
SBTC = f"{DEPLOYER}.sbtc-token::sbtc-token"
USDCX = f"{DEPLOYER}.usdcx::usdcx-token"
ASSETS = {"SBTC": SBTC, "USDCX": USDCX, "STX": "STX"}
NETWORK = "stacks:2147483648"
NODE = 20


def why_not() -> str | None:
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        return f"no {' and '.join(missing)} here: scripts/system-packages test"
    reported = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    major = int(reported.strip().removeprefix("v").partition(".")[0])
    return None if major >= NODE else f"node {reported.strip()} here, {NODE} or later is needed"


class Simnet:
    code = "STX"

    def __init__(self, *, block_milliseconds: int = 0) -> None:
        """0: a block comes only by `mine()`."""
        modules = installed()
        self._folder = Path(tempfile.mkdtemp(prefix="stacks-"))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._http = httpx.Client(base_url=self.url, timeout=60, trust_env=False)
        command = ["node", str(modules / "server.mjs"), str(self.port), DEPLOYER, str(block_milliseconds)]
        self._child = Child(command, self._folder / "log")
        try:
            self._child.wait_until(self._answers)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Simnet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._child.stop()
        self._http.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def mine(self, count: int = 1) -> int:
        return int(self._act("mine", count=count))

    def mint(self, asset: str, address: str, amount: int) -> None:
        """`asset` is SBTC, USDCX or STX."""
        self._act("mint", asset=ASSETS[asset], to=address, amount=amount)

    def pay(self, address: str, atomic: int) -> str:
        """Native coins out of nothing; the block's hash, since no transaction was needed."""
        return str(self._act("mint", asset="STX", to=address, amount=atomic))

    def reorg(self, depth: int) -> None:
        """Takes blocks back for good: what was in them waits in the mempool again."""
        self._act("reorg", depth=depth)

    def block_time(self, milliseconds: int) -> None:
        self._act("block-time", milliseconds=milliseconds)

    def drop(self, txid: str) -> None:
        """The mempool forgets it."""
        self._act("drop", txid=txid)

    def balance(self, asset: str, address: str) -> int:
        reported = self.read(f"/extended/v1/address/{address}/balances")
        entry = reported["stx"] if asset == "STX" else reported["fungible_tokens"][ASSETS[asset]]
        return int(entry["balance"])

    def read(self, path: str) -> Any:
        return self._http.get(path).raise_for_status().json()

    def read_or_none(self, path: str) -> Any | None:
        answer = self._http.get(path)
        return None if answer.status_code == 404 else answer.raise_for_status().json()

    def broadcast(self, raw: bytes) -> httpx.Response:
        return self._http.post("/v2/transactions", content=raw)

    def _act(self, verb: str, **body: object) -> Any:
        return self._http.post(f"/test/{verb}", json=body).raise_for_status().json()

    def _answers(self) -> bool:
        try:
            return self._http.get("/v2/info", timeout=2).is_success
        except httpx.TransportError:
            return False


def installed(folder: Path = FOLDER, what: str = "stacks") -> Path:
    """A folder with our node files and their pinned modules; made once, shared by all runs."""
    ours = sorted(path for path in folder.rglob("*") if path.is_file() and "node_modules" not in path.parts)
    name = hashlib.sha256(b"".join(path.read_bytes() for path in ours)).hexdigest()[:16]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sandboxer-testchains"
    cache.mkdir(parents=True, exist_ok=True)
    home = cache / f"{what}-{name}"
    with (cache / f"{what}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            shutil.rmtree(home, ignore_errors=True)
            shutil.copytree(folder, home, ignore=shutil.ignore_patterns("node_modules"))
            quiet = ("--no-fund", "--no-audit", "--ignore-scripts", "--loglevel=error")
            subprocess.run(["npm", "ci", *quiet], cwd=home, check=True, stdout=subprocess.DEVNULL)
            (home / "complete").touch()
    return home
