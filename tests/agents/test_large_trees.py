"""Trees of sandboxes that were made from inside, on real walls: the middle of one dies at any moment, and one
has a thousand.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import func, select

from bench.census import cgroup_roots
from sandboxer.agents.inception.grants import account_of, living_grants
from sandboxer.money.records import bucket_id
from sandboxer.money.tables import ledger_accounts, ledger_pendings
from sandboxer.settings import Settings
from tests.support.http.accounts import funded
from tests.support.http.real import IMAGES, on_real_walls, why_not
from tests.support.http.served import Served
from tests.support.http.signed import Client

SEED = int(os.environ.get("SANDBOXER_TEST_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
TINY = {"resources": {"vcpus": 0.25, "memory_mb": 16, "disk_mb": 16, "pids": 16}, "ttl": "1h"}
# Makes sandboxes one after the other, each with the body that is given, and prints their ids.
MAKE = """
import http.client, json, socket, sys
class Inside(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect("/run/sandboxer/api.sock")
line = Inside("localhost", timeout=120)
for _ in range(int(sys.argv[1])):
    line.request("POST", "/v1/sandboxes", sys.argv[2], {"Content-Type": "application/json"})
    answer = line.getresponse()
    said = json.loads(answer.read())
    if answer.status != 201:
        sys.exit(json.dumps(said))
    print(said["id"], flush=True)
"""
UNCOUNTED = dict.fromkeys(("limit_bucket_only", "limit_address", "limit_refusals"), 1_000_000)


def settings(folder: Path, **more: object) -> Settings:
    if why := why_not():
        pytest.skip(why)
    facts = {"state_dir": folder / "state", "host": "127.0.0.1", "port": 0, "images_dir": IMAGES}
    return Settings.model_validate(facts | UNCOUNTED | more)


async def until(what: Callable[[], Awaitable[bool]], within_s: float) -> None:
    """Asks again and again, ever more rarely: what ends a tree runs beside us."""
    pause_s = 0.01
    async with asyncio.timeout(within_s):
        while not await what():
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, 0.5)


async def make(client: Client, parent: str, count: int, body: object) -> list[str]:
    """Returns the ids of what a program in the parent made."""
    answer = await client.post(
        f"/v1/sandboxes/{parent}/exec",
        {"argv": ["python3", "-c", MAKE, str(count), json.dumps(body)], "timeout_s": 900},
    )
    assert answer.status_code == 200, answer.text
    assert answer.json()["exit_code"] == 0, answer.text
    return str(answer.json()["stdout"]).split()


def supervisor(served: Served, sandbox_id: str) -> int:
    sandbox = served.platform.sandboxes.repository.peek(sandbox_id)
    assert sandbox is not None
    assert sandbox.handle is not None
    return int(str(sandbox.handle.data["pid"]))


class Round:
    """A middle that makes leaves, and dies at a moment that nobody chose."""

    def __init__(self, served: Served, maker: Client, top: str, dice: random.Random) -> None:
        self.served, self.maker, self.top, self.dice = served, maker, top, dice

    async def play(self) -> str:
        bounds = {"budget_sats": 60, "slots": 3, "depth": 1}
        (middle,) = await make(self.maker, self.top, 1, TINY | {"inception": bounds})
        leaf = TINY | ({"inception": {"budget_sats": 10}} if self.dice.random() < 0.5 else {})
        # Whoever made the top does not reach below what it granted; the operator does.
        started = await self.served.client.post(
            f"/v1/sandboxes/{middle}/processes",
            {"argv": ["python3", "-c", MAKE, str(self.dice.randint(1, 3)), json.dumps(leaf)]},
        )
        assert started.status_code == 201, started.text
        await asyncio.sleep(self.dice.uniform(0, 0.4))
        way = self.dice.choice((self._ended_by_owner, self._ended_from_inside, self._killed))
        await way(middle)
        await until(self._is_gone, 60)
        return way.__name__

    async def _ended_by_owner(self, middle: str) -> None:
        answer = await self.served.client.delete(f"/v1/sandboxes/{middle}")
        assert answer.status_code == 200, answer.text

    async def _ended_from_inside(self, middle: str) -> None:
        answer = await self.maker.post(
            f"/v1/sandboxes/{self.top}/exec",
            {"argv": ["sandboxer", "api", "DELETE", f"/v1/sandboxes/{middle}"]},
        )
        assert answer.json()["exit_code"] == 0, answer.text

    async def _killed(self, middle: str) -> None:
        """It is stopped then, and could be resumed: only its end ends what it made."""
        os.kill(supervisor(self.served, middle), signal.SIGKILL)
        await self._ended_by_owner(middle)

    async def _is_gone(self) -> bool:
        """Nothing of it or below it lives, and nothing that it was given is still out."""
        grants = {key.account for key in await self.served.platform.store.read(living_grants)}
        living = {one.id for one in self.served.platform.sandboxes.repository.living()}
        return grants == {account_of(self.top)} and living == {self.top}


async def play(folder: Path, rounds: int) -> None:
    """Plays so many deaths in the middle of a tree and accounts for every sat."""
    dice = random.Random(SEED)
    print(f"SANDBOXER_TEST_SEED={SEED}")
    async with on_real_walls(settings(folder, pool_size_mb=800, charging=True)) as served:
        maker = await funded(served, "maker", 100_000)
        made = await maker.post(
            "/v1/sandboxes", TINY | {"inception": {"budget_sats": 50_000, "slots": 8, "depth": 2}}
        )
        assert made.status_code == 201, made.text
        top = str(made.json()["id"])
        ways = [await Round(served, maker, top, dice).play() for _ in range(rounds)]
        print({way: ways.count(way) for way in sorted(set(ways))})
        await _demand_no_orphans(served, {top})
        assert (await maker.delete(f"/v1/sandboxes/{top}")).status_code == 200

        async def is_over() -> bool:
            return not await served.platform.store.read(living_grants)

        await until(is_over, 60)
        await _demand_no_orphans(served, set())
        await _demand_every_sat(served, maker, 100_000)


async def _demand_no_orphans(served: Served, known: set[str]) -> None:
    roots = cgroup_roots(served.platform.settings.state_dir)

    async def is_clean() -> bool:
        return {group.name for root in roots for group in root.glob("sbx_*")} == known

    await until(is_clean, 10)


async def _demand_every_sat(served: Served, maker: Client, given: int) -> None:
    """What the maker has not, is income; nothing stayed below."""
    assert (await served.client.get("/v1/ledger/verify")).json()["is_whole"]
    columns = ledger_accounts.c
    left = columns.credits_posted - columns.debits_posted
    granted = select(func.sum(left)).where(columns.kind == "budget")

    async def is_settled() -> bool:
        return not await served.platform.store.read(lambda conn: conn.execute(granted).scalar_one())

    # What a grant has left returns a moment after its end.
    await until(is_settled, 30)
    below = (
        select(columns.id, left.label("left")).where(columns.kind == "bucket", left != 0).order_by(columns.id)
    )
    found = await served.platform.store.read(lambda conn: {row.id: row.left for row in conn.execute(below)})
    waiting = await served.platform.store.read(
        lambda conn: conn.execute(select(func.count()).select_from(ledger_pendings)).scalar_one()
    )
    income = select(func.sum(left)).where(columns.kind == "income")
    earned = await served.platform.store.read(lambda conn: conn.execute(income).scalar_one())
    assert waiting == 0
    assert set(found) == {bucket_id("maker")}
    assert found[bucket_id("maker")] + int(earned) == given


@pytest.mark.timeout(110)
async def test_a_middle_that_dies_at_any_moment_leaves_no_orphan_and_no_sat_behind(tmp_path: Path) -> None:
    await play(tmp_path, 6)


@pytest.mark.slow
@pytest.mark.timeout(900)
async def test_a_hundred_middles_that_die_at_any_moment_leave_nothing_behind(tmp_path: Path) -> None:
    await play(tmp_path, 100)


@pytest.mark.slow
@pytest.mark.timeout(1500)
async def test_a_tree_of_a_thousand_is_made_from_inside_shown_and_ended_at_once(tmp_path: Path) -> None:
    branches, leaves = 9, 110
    chosen = settings(tmp_path, pool_size_mb=12_000, charging=False)
    async with on_real_walls(chosen) as served:
        top = (await served.sandbox(**TINY, inception={"slots": 1100, "depth": 2})).rpartition("/")[2]
        began = time.monotonic()
        below = TINY | {"inception": {"slots": leaves}}
        branch = await make(served.client, top, branches, below)
        made = await asyncio.gather(*(make(served.client, one, leaves, TINY) for one in branch))
        took = time.monotonic() - began
        ids = {top, *branch, *(one for some in made for one in some)}
        assert len(ids) == 1 + branches + branches * leaves == 1000
        print(f"{len(ids)} sandboxes in {took:.1f} s, {took / len(ids) * 1000:.1f} ms each")
        ran = await served.client.post(f"/v1/sandboxes/{made[-1][-1]}/exec", {"command": "echo here"})
        assert ran.json()["stdout"] == "here\n"
        began = time.monotonic()
        shown = json.dumps((await served.client.get("/v1/tree")).json())
        print(f"shown in {(time.monotonic() - began) * 1000:.0f} ms")
        assert all(one in shown for one in ids)
        began = time.monotonic()
        assert (await served.client.delete(f"/v1/sandboxes/{top}")).status_code == 200
        repository = served.platform.sandboxes.repository

        async def is_over() -> bool:
            return not any(repository.living())

        await until(is_over, 600)
        print(f"ended in {time.monotonic() - began:.1f} s")
        await _demand_no_orphans(served, set())
