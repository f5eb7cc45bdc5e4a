"""From 402 to a paid answer on a local EVM chain: the platform, and the bare x402 package doing the same.

Both sides are asked in turn by the official client over kept-alive connections: refused with 402, signed,
paid, answered. The bare one settles and does nothing else; ours writes the payment down before it moves,
credits it in the ledger and answers with a receipt. No sandbox is made: it has figures of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
from eth_account import Account
from rich.console import Console
from x402 import x402Client
from x402.http.clients.httpx import wrapHttpxWithPayment
from x402.mechanisms.evm.exact.register import register_exact_evm_client

from bench.measurements import Bar, Report, Row, Samples, Skipped
from bench.platform import own_folder
from bench.report import machine_facts, print_table
from bench.shops import SATS
from testchains.evm import Anvil, running_anvil, why_no_anvil

BAR = Bar(text="≤ 2 × the bare package", limit=2.0)
FIGURE = "402 → paid answer, local EVM chain"


def payments(folder: Path, rounds: int) -> Iterator[Row | Samples | Skipped]:
    if why := why_no_anvil():
        yield Skipped(FIGURE, why)
        return
    with running_anvil(folder) as chain:
        wallet = chain.new_wallet(1_000_000_000_000)
        with _shop("ours", folder, chain) as ours, _shop("bare", folder, chain) as bare:
            mine, theirs = asyncio.run(_compare(wallet, ours, bare, rounds))
    yield Row(figure=FIGURE, subject=mine, baseline=theirs, bar=BAR)


async def _compare(wallet: str, ours: str, bare: str, rounds: int) -> tuple[Samples, Samples]:
    times: dict[str, list[float]] = {ours: [], bare: []}
    async with _agent(wallet, ours) as first, _agent(wallet, bare) as second:
        for number in range(rounds + 3):
            for url, http in ((ours, first), (bare, second)):
                spent = await _pay(http)
                # The first of each open connections and warm caches.
                if number >= 3:
                    times[url].append(spent)
    return Samples("sandboxer", "ms", tuple(times[ours])), Samples("bare x402", "ms", tuple(times[bare]))


async def _pay(http: httpx.AsyncClient) -> float:
    began = time.perf_counter()
    answer = await http.post("/v1/topups", json={"sats": SATS})
    spent = (time.perf_counter() - began) * 1000
    if answer.status_code != 201:
        raise RuntimeError(f"{http.base_url} answered {answer.status_code}: {answer.text[:500]}")
    return spent


@asynccontextmanager
async def _agent(wallet: str, url: str) -> AsyncIterator[httpx.AsyncClient]:
    client = x402Client()
    register_exact_evm_client(client, Account.from_key(wallet))
    client.set_spend_controls(False)
    async with wrapHttpxWithPayment(client, base_url=url, timeout=60) as http:
        yield http


@contextmanager
def _shop(which: str, folder: Path, chain: Anvil) -> Iterator[str]:
    state_dir = folder / which
    state_dir.mkdir()
    words = [sys.executable, "-m", "bench.shops", which, str(state_dir), chain.url, chain.asset]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = process.stdout.readline().strip()
        if not port:
            raise RuntimeError(f"the shop ({which}) did not open")
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.stdin.close()
            process.wait(30)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--quick", action="store_true")
    words = parser.parse_args()
    started_at = datetime.now(UTC).isoformat(timespec="seconds")
    with own_folder() as folder:
        found = list(payments(folder, 5 if words.quick else words.rounds))
    rows = [row for row in found if isinstance(row, Row)]
    skipped = [one for one in found if isinstance(one, Skipped)]
    report = Report(machine=machine_facts(), started_at=started_at, rows=rows, skipped=skipped)
    print_table(report, Console(highlight=False, width=150))
    return 0 if report.passed else 1


if __name__ == "__main__":
    sys.exit(main())
