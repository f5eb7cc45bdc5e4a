"""Anonymous accounts and the disk: nothing durable for whoever has no sats, by whichever route."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import sandboxer
from sandboxer.accounts.storage import UNFUNDED_COUNT
from sandboxer.artifacts.charges import NOUNS
from sandboxer.artifacts.repository import KeptRepository
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.money.pricing import Rates
from sandboxer.settings import Settings
from sandboxer.store.metadata import metadata
from tests.support.http.served import Served, serving
from tests.support.http.signed import Credentials


@pytest.fixture
async def paid(settings: Settings) -> AsyncIterator[Served]:
    backend = Scripted(name="ext.namespaces")
    charged = settings.model_copy(update={"charging": True})
    async with serving(charged, {"ext.namespaces": backend}) as running:
        yield running


async def fund(served: Served, account: str, sats: int, id: str) -> None:
    body = {"sats": sats, "id": id, "reason": "test"}
    answer = await served.client.post(f"/v1/accounts/{account}/adjust", body)
    assert answer.status_code == 200, answer.text


async def test_a_wallet_without_sats_keeps_nothing(paid: Served) -> None:
    """A fresh keypair with 0 sats once made 2,700 MB of volumes in a 3,000 MB pool."""
    wallet = await paid.stranger("wallet")
    refused = await wallet.post("/v1/volumes", {"name": "a", "size_mb": 16})
    assert (refused.status_code, refused.json()["code"]) == (402, "insufficient_credit"), refused.text
    refused = await wallet.send("POST", "/v1/images/import?name=x", content=b"x" * 100_000)
    assert (refused.status_code, refused.json()["code"]) == (402, "insufficient_credit"), refused.text
    assert (await wallet.get("/v1/volumes")).json()["volumes"] == []


async def test_a_wallet_without_sats_has_few_keys_below_it_and_so_few_accounts_that_keep_a_little(
    paid: Served,
) -> None:
    """Each key is an account with secrets, SSH keys, webhooks and rules of its own."""
    wallet = await paid.stranger("wallet")
    wish = {"name": "child", "scopes": ["keys:delegate", "account:manage"], "depth": 1}
    child = await wallet.post("/v1/keys/delegated", wish)
    assert child.status_code == 201, child.text
    below = paid.as_(Credentials(child.json()["public_key"], child.json()["secret_key"]))
    for number in range(1, UNFUNDED_COUNT):
        made = await (below if number % 2 else wallet).post("/v1/keys/delegated", {**wish, "depth": 0})
        assert made.status_code == 201, made.text
    for who in (wallet, below):
        refused = await who.post("/v1/keys/delegated", {**wish, "depth": 0})
        assert (refused.status_code, refused.json()["code"]) == (402, "insufficient_credit"), refused.text
        assert "16 delegated keys:" in refused.json()["next_step"]
    await fund(paid, "wallet", 1, "first")
    for who in (wallet, below):
        assert (await who.post("/v1/keys/delegated", {**wish, "depth": 0})).status_code == 201
    gives_all = await wallet.post("/v1/keys/delegated", {**wish, "depth": 0, "budget_sats": 1})
    assert gives_all.status_code == 201, gives_all.text


async def test_what_was_made_while_there_were_sats_is_not_kept_without_them(paid: Served) -> None:
    client = await paid.stranger("poor")
    await fund(paid, "poor", 5, "first")
    made = await client.post("/v1/sandboxes", {})
    assert made.status_code == 201, made.text
    path = f"/v1/sandboxes/{made.json()['id']}"
    for where, body in (
        (f"{path}/snapshots", {}),
        ("/v1/images", {"sandbox": made.json()["id"], "name": "i"}),
        ("/v1/volumes", {"name": "v", "size_mb": 10_000}),
    ):
        refused = await client.post(where, body)
        assert (refused.status_code, refused.json()["code"]) == (402, "insufficient_credit"), refused.text
    await fund(paid, "poor", 100_000, "second")
    assert (await client.post(f"{path}/snapshots", {})).status_code == 201
    assert (await client.post("/v1/volumes", {"name": "v", "size_mb": 100})).status_code == 201


async def test_the_owner_keeps_what_it_likes(paid: Served) -> None:
    assert (await paid.client.post("/v1/volumes", {"name": "v", "size_mb": 100})).status_code == 201


async def test_where_nobody_is_charged_everybody_keeps_what_the_quotas_allow(served: Served) -> None:
    client = await served.stranger("anyone")
    assert (await client.post("/v1/volumes", {"name": "v", "size_mb": 100})).status_code == 201


def test_storage_has_a_price_unless_the_operator_says_otherwise() -> None:
    assert Rates().stored_disk_gb_msats > 0


def test_every_table_of_kept_things_is_counted_at_the_door() -> None:
    """A noun that has an account and a size and is not named in `holdings` would be kept for nothing."""
    kept = {
        table.name
        for table in metadata.tables.values()
        if "account" in table.c and {"size_mb", "rate_msats"} & set(table.c.keys()) and "version" in table.c
    }
    assert kept - {"sandboxes"} == set(NOUNS)


def test_every_record_of_a_kept_thing_is_written_behind_the_door() -> None:
    """Each noun's repository is a `KeptRepository`, whose `_admit` asks for funds; nobody else inserts."""
    nouns = KeptRepository.__subclasses__()
    assert len(nouns) == len(NOUNS)
    for noun in nouns:
        own = inspect.getsource(noun)
        assert "def add(" not in own, f"{noun} has a way of its own to add a record"
        assert "def _admit(" not in own or "super()._admit(" in own, f"{noun} asks nobody for funds"
    root = Path(sandboxer.__file__).parent
    callers = {
        path.relative_to(root).as_posix() for path in root.rglob("*.py") if "rows.insert(" in path.read_text()
    }
    assert callers == {"store/repository.py"}, "records are written by their repository alone"


async def test_a_tier_keeps_the_disks_it_has_room_for_and_no_more(paid: Served) -> None:
    """Stopping one and making the next kept any number of disks for a week, without a sat."""
    client = await paid.stranger("tiered")
    await fund(paid, "tiered", 1, "first")
    tier = {"tier": 1, "until": "2199-01-01T00:00:00Z", "reason": "test"}
    assert (await paid.client.post("/v1/accounts/tiered/entitle", tier)).status_code == 200
    kept = []
    for _ in range(3):
        made = await client.post("/v1/sandboxes", {"resources": {"disk_mb": 8192}})
        assert made.status_code == 201, made.text
        stopped = await client.post(f"/v1/sandboxes/{made.json()['id']}/stop", {})
        assert stopped.status_code == 200, stopped.text
        kept.append(datetime.fromisoformat(stopped.json()["expires_at"]) - datetime.now(UTC))
    # A tier has 20 GB of disk for each of its steps.
    assert [one > timedelta(days=6) for one in kept] == [True, True, False]
    assert kept[2] <= timedelta(minutes=10)
