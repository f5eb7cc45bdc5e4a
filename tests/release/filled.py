"""`python -m tests.release.filled` keeps databases of today, filled by every noun, for upgrades of tomorrow.

For each kind of database an archive in `databases/`: the rows as statements, the keys that open what is
sealed in them, and a list of what is there. They are made before the migrations are squashed, by the program
that has the steps, and stay as they are from then on. Every key and every sat in them was made for them.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, select

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.backends.scripted.disk import Disk
from sandboxer.identity.seal import open_master_key
from sandboxer.kernel.values import new_id
from sandboxer.settings import Settings
from sandboxer.store.engine import Store, open_store
from sandboxer.store.metadata import metadata
from sandboxer.store.migrations import known_head
from sandboxer.store.sealed import seal_with
from sandboxer.wire.operations.declaration import Access, Answered
from sandboxer.wire.operations.table import OPERATIONS
from testchains.evm import Anvil, running_anvil
from tests.release import matrix
from tests.release.frozen import document
from tests.support.http.served import Served, serving
from tests.support.http.signed import Client
from tests.support.http.wallets import sign_in
from tests.support.http.x402 import agent
from tests.support.payments.memory_chain import MemoryChain
from tests.support.payments.shop import open_shop
from tests.support.payments.x402 import RATES, SIGNER_KEY, settings_for
from tests.support.postgres import running_postgres

FOLDER = Path(__file__).parent / "databases"
# What opens the rows: the master key, and the owner's.
KEYS = ("master.key", "owner.json")
SIGNED, OWNER = Access.SIGNED, Access.OWNER


@asynccontextmanager
async def opened(state: Path, database: str | None, chain: Anvil, backend: Scripted) -> AsyncIterator[Served]:
    settings = Settings.model_validate(
        {
            "state_dir": state,
            "database": database,
            "host": "127.0.0.1",
            "port": 0,
            "limit_auth": 10**6,
            "limit_bucket_only": 10**6,
            "limit_address": 10**6,
            "webhook_allow_private": True,
            "x402": settings_for(chain),
            "x402_signer_key": SIGNER_KEY,
            "fixed_rates": {asset: str(price) for asset, price in RATES.items()},
            # Nobody listens there: what is to be mailed waits.
            "smtp_host": "127.0.0.1",
            "smtp_port": 9,
            "smtp_from": "platform@example.org",
        }
    )
    async with serving(settings, {backend.name: backend}) as running:
        yield running


async def fill(served: Served, chain: Anvil) -> Client:
    """Everything that can be asked for over HTTP, once by a customer and once by the owner; then what that
    leaves out, and what comes from outside. Answers with the customer."""
    receiver = await asyncio.start_server(matrix._receive, "127.0.0.1", 0)
    async with receiver:
        url = f"http://127.0.0.1:{receiver.sockets[0].getsockname()[1]}/x"
        people = await matrix._people(served, url)
        for asked in matrix.operations(document()):
            for who in (people.alice, served.client):
                await matrix._cell(people, asked, who, await matrix._ids(people, asked))
        await people.mine.made("webhook_id", {})
    await _keep(people.alice)
    await _give_cards(served)
    await _pay_invoices(served.platform.store)
    await _pay_by_x402(served, chain)
    await sign_in(served.client.http, "of the fixture")
    return people.alice


async def posted(client: Client, path: str, body: object, *, method: str = "POST", **headers: str) -> Any:
    answer = await client.send(method, path, body=body, headers=headers)
    assert answer.is_success, (path, answer.text)
    return answer.json()


async def _keep(client: Client) -> None:
    """What the sweep removes again, or cannot combine."""
    await posted(client, "/v1/secrets/KEPT", {"value": "of the fixture"}, method="PUT")
    disk = await posted(client, "/v1/volumes", {"name": "kept", "size_mb": 16})
    wanted = {
        "name": "kept",
        "trust": "semi",
        "labels": {"kept": "yes"},
        "volumes": [{"volume": disk["id"], "path": "/data"}],
    }
    made = await posted(client, "/v1/sandboxes", wanted, **{"idempotency-key": "of-the-fixture"})
    await posted(client, f"/v1/sandboxes/{made['id']}/secrets", {"names": ["KEPT"]}, method="PUT")


async def _give_cards(served: Served) -> None:
    """One is redeemed, one waits for somebody to approve it."""
    wanted = {"cents": 1000, "pay_with": "operator", "reason": "a test"}
    for more in ({}, {"approval": {"email": "boss@example.org"}}):
        card = await posted(served.client, "/v1/gift-cards", wanted | more)
        gifted = await served.stranger("gifted")
        await posted(gifted, "/v1/gift-cards/redeem", {"code": card["code"]})


async def _pay_invoices(store: Store) -> None:
    """One is paid, one is paid too much, one too little and goes back, one is left open."""
    chain = MemoryChain()
    shop = open_shop(store, chain)
    shop.clock.moment = datetime.now(UTC) - timedelta(hours=3)
    buyer = await shop.buyer()
    short = await shop.order(tier=1, months=1, refund_address="address-of-the-buyer")
    chain.pay(short.invoice.address, short.invoice.price.atomic // 2)
    chain.mine(30)
    await shop.look(after=timedelta(hours=2))
    assert await shop.refunds()
    bills = [await shop.order(account=buyer) for _ in range(3)]
    for bill, times in zip(bills, (1, 2), strict=False):
        chain.pay(bill.invoice.address, bill.invoice.price.atomic * times)
    chain.mine(30)
    await shop.look()


async def _pay_by_x402(served: Served, chain: Anvil) -> None:
    """A stranger with a wallet buys a sandbox, then fills the bucket that came with it."""
    async with agent(served, chain.new_wallet(5_000_000)) as http:
        for path, wanted in (("/v1/sandboxes", {}), ("/v1/topups", {"sats": 1000})):
            made = await http.post(path, json=wanted)
            assert made.is_success, made.text


async def lists(client: Client, *, pages: int = 1) -> dict[str, list[str]]:
    """What each list shows first that has no name in its path: ids, or as many empty words."""
    found = {}
    for operation in OPERATIONS:
        is_list = operation.method == "GET" and "{" not in operation.path
        if is_list and isinstance(operation.answer, Answered) and operation.access in (SIGNED, OWNER):
            ids = await _listed(client, operation.path, pages)
            if ids is not None:
                found[operation.path] = ids
    return found


async def _listed(client: Client, path: str, pages: int) -> list[str] | None:
    """None: there is no such thing on this platform, or not for this caller."""
    ids: list[str] = []
    target = path
    for _ in range(pages):
        answer = await client.get(target)
        if not answer.is_success:
            assert answer.json()["code"] in ("not_available", "forbidden"), (path, answer.text)
            return None
        shown = answer.json()
        ids += next(([_id(one) for one in some] for some in shown.values() if isinstance(some, list)), [])
        if not shown.get("next_cursor"):
            break
        target = f"{path}?cursor={shown['next_cursor']}"
    return ids


def _id(one: object) -> str:
    return str(one.get("id", "")) if isinstance(one, dict) else ""


def counted(conn: Connection) -> dict[str, int]:
    """How many rows each table has, once each was read."""
    counts = {}
    for table in metadata.sorted_tables:
        rows = conn.execute(select(table)).all()
        assert len(rows) == conn.execute(select(func.count()).select_from(table)).scalar()
        counts[table.name] = len(rows)
    return counts


async def unsealed(url: str, state: Path) -> Store:
    """The store of a platform that is not running, with the key to what is sealed in it."""
    store = open_store(url)
    seal_with(store.database, await open_master_key(store, state / "master.key"))
    return store


async def make(kind: str, database: str | None, folder: Path, chain: Anvil) -> None:
    state, keep, backend = folder / "state", folder / "kept", Scripted(name="ext.namespaces")
    async with opened(state, database, chain, backend) as served:
        customer = (await fill(served, chain)).credentials
    # Nobody's disk, found by a server that comes after a gap in time.
    backend.kept_disks[new_id("sbx")] = Disk(2**20)
    async with opened(state, database, chain, backend) as served:
        shown = {"owner": await lists(served.client), "customer": await lists(served.as_(customer))}
    store = await unsealed(database or f"sqlite:///{state}/sandboxer.db", state)
    rows = await store.read(counted)
    await store.close()
    keep.mkdir()
    for name in KEYS:
        shutil.copy(state / name, keep)
    key = {"public_key": customer.public_key, "secret_key": customer.secret_key}
    (keep / "customer.json").write_text(json.dumps(key))
    reported = {"at": datetime.now(UTC).isoformat(), "rows": rows, "lists": shown}
    (keep / "listed.json").write_text(json.dumps(reported, indent=1))
    await asyncio.to_thread(_dump, database, state, keep / "dump.sql")
    FOLDER.mkdir(exist_ok=True)
    with tarfile.open(FOLDER / f"{known_head()}-{kind}.tar.xz", "w:xz") as archive:
        for path in sorted(keep.iterdir()):
            archive.add(path, path.name)
    empty = [name for name, many in rows.items() if not many]
    print(f"{kind}: {sum(rows.values())} rows; empty: {', '.join(empty) or 'none'}")


def _dump(database: str | None, state: Path, file: Path) -> None:
    if database is None:
        with closing(sqlite3.connect(state / "sandboxer.db")) as conn:
            file.write_text("\n".join(conn.iterdump()) + "\n")
    else:
        words = ["pg_dump", "--no-owner", "--no-privileges", f"--file={file}", database]
        subprocess.run(words, check=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_anvil(Path(folder)) as chain:
        asyncio.run(make("sqlite", None, Path(folder) / "sqlite", chain))
        with running_postgres() as url:
            asyncio.run(make("postgresql", url, Path(folder) / "postgresql", chain))


if __name__ == "__main__":
    main()
