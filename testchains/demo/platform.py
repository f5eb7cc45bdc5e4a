"""A platform of the demo's own: `sandboxer up` in a temporary folder, told of the chains that are there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.census import remove_cgroups
from sandboxer.payments.wallet.spenders import Seed
from sandboxer.sdk.sync.client import Sandboxer
from testchains.demo.places import Place
from testchains.processes import Child, free_port

ROOT = Path(__file__).resolve().parents[2]
IMAGES = Path("/var/lib/sandboxer/images")
POOL_MB = 2048
RATES = {"BTC": "100000", "USDC": "1", "LTC": "80", "XMR": "160"}
# Two sats a second, so that a demo of seconds has something to show.
PRICING = {"rates": {"running_msats": 2000}}


@dataclass(frozen=True, slots=True)
class Shop:
    url: str
    state_dir: Path

    @property
    def owner_file(self) -> Path:
        return self.state_dir / "owner.json"


def why_not() -> str | None:
    if os.geteuid() != 0:
        return "real sandboxes need root: sudo .venv/bin/sandboxer pay demo"
    if not (IMAGES / "base" / "image.json").is_file() or not (ROOT / "guest/build/launcher").is_file():
        return "the base image or the guest is not built: make setup"
    return None


@contextmanager
def own_folder() -> Iterator[Path]:
    """Not in /tmp, which is memory on many hosts: the storage pool lies here."""
    folder = Path(tempfile.mkdtemp(prefix="sandboxer-pay-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        _unmount_below(folder)
        remove_cgroups(folder / "state")
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_shop(folder: Path, places: Sequence[Place], seed: Seed) -> Iterator[Shop]:
    state_dir = folder / "state"
    state_dir.mkdir()
    port = free_port()
    command = [sys.executable, "-m", "sandboxer.edges.cli.main", "up", "--state-dir", str(state_dir)]
    child = Child([*command, "--port", str(port)], folder / "up.log", environment=_environment(places, seed))
    shop = Shop(f"http://127.0.0.1:{port}", state_dir)
    try:
        child.wait_until(lambda: _is_ready(shop))
        try:
            yield shop
        finally:
            _destroy_everything(shop)
    finally:
        child.stop(seconds=30)


def _environment(places: Sequence[Place], seed: Seed) -> dict[str, str]:
    reported = [place.settings(seed) for place in places]
    networks = [one["x402"] for one in reported if "x402" in one]
    chains = {code: chain for one in reported for code, chain in one.get("chains", {}).items()}
    keys = [one["x402_signer_key"] for one in reported if "x402_signer_key" in one]
    settings: dict[str, Any] = {
        "IMAGES_DIR": IMAGES,
        "POOL_SIZE_MB": POOL_MB,
        "LOG_LEVEL": "warning",
        "X402": json.dumps({"networks": networks} if networks else {}),
        "CHAINS": json.dumps(chains),
        "FIXED_RATES": json.dumps(RATES),
        "PRICING": json.dumps(PRICING),
        "INVOICES": json.dumps({"poll_s": 0.2}),
        **({"X402_SIGNER_KEY": keys[0]} if keys else {}),
    }
    plain = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
    return plain | {f"SANDBOXER_{name}": str(value) for name, value in settings.items()}


def _is_ready(shop: Shop) -> bool:
    try:
        return httpx.get(f"{shop.url}/readyz", timeout=2, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False


def _destroy_everything(shop: Shop) -> None:
    """Sandboxes outlive their platform, by design; a demo's must not."""
    with Sandboxer(owner_file=shop.owner_file, url=shop.url) as owner:
        for sandbox in owner.list():
            owner.sandbox(sandbox.id).destroy()


def _unmount_below(folder: Path) -> None:
    for line in reversed(Path("/proc/self/mountinfo").read_text().splitlines()):
        target = line.split(" ")[4]
        if target.startswith(f"{folder}/"):
            subprocess.run(["umount", "-d", target], check=False)
