"""kill -9 of a server that charges, a thousand times: the ledger is whole after each, nothing is orphaned,
and nobody pays for what was not there.

The server is `sandboxer up` on a real database. Its sandboxes are the shipped fake's, on a host that outlives
it: a round takes a second. What the real walls leave behind is the matter of `test_crashes`.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Connection, select

from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import sandboxes
from tests.crash import books
from tests.crash.charged_server import Round, Server, Servers, forking_servers
from tests.crash.customers import Memory, customers, open_accounts
from tests.crash.lasting_host import read_host, write_host
from tests.support.platforms import free_port

SEED = int(os.environ.get("SANDBOXER_TEST_SEED", "1"))
FEW = int(os.environ.get("SANDBOXER_TEST_FEW_KILLS", "15"))
MANY = int(os.environ.get("SANDBOXER_TEST_KILLS", "500"))
# A step is a transaction or a change of the host; a start takes about as many as this.
START_STEPS, WORK_STEPS = 60, 400
# Two clocks are compared, and the kill itself takes a moment.
TOLERANCE = timedelta(milliseconds=250)
DEEDS = frozenset(
    {
        "_create",
        "_exec",
        "_extend",
        "_destroy",
        "_change",
        "_top_up",
        "_cut",
        "_revoke",
        "_buy_card",
        "_redeem",
    }
    | {"_send", "_take", "_drop", "_make_volume", "_remove_volume"}
)
RUNNING = (State.READY.value, State.ACTIVE.value, State.FROZEN.value)


@dataclass
class Lost:
    """A sandbox that went with its disk while no server ran."""

    id: str
    at: datetime


@dataclass
class Killer:
    servers: Servers
    folder: Path
    database: str
    dice: random.Random
    memory: Memory = field(default_factory=Memory)
    lost: list[Lost] = field(default_factory=list)
    # How many were killed while they opened, by themselves at a step, and from outside while they worked.
    opening: int = 0
    at_a_step: int = 0
    working: int = 0
    # What was owed when the last one died, if the next start is to be compared with it.
    owed: books.Flow | None = None
    # How long the last one took to open: on a busy machine ten times as long.
    opens_in_s: float = 0.5

    @property
    def host_file(self) -> Path:
        return self.folder / "host"

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    def strike(self) -> None:
        """One server's life, and a look at what it left."""
        way = self.dice.choice(("opening", "step", "step", "working", "working"))
        steps = self.dice.randint(1, START_STEPS if self.dice.random() < 0.3 else WORK_STEPS)
        began = time.monotonic()
        with self.server(dies_at=steps if way == "step" else None) as (process, plan):
            if way == "opening":
                # The moment is the fault.
                time.sleep(self.dice.random() * self.opens_in_s)
                self.opening += 1
            elif process.is_ready(plan):
                self.opens_in_s = time.monotonic() - began
                self._look(began)
                self._let_work(process, plan.port, way)
            else:
                self.at_a_step += 1
        self._look_at_the_dead()

    def open(self) -> None:
        with self.server(dies_at=None) as (process, plan):
            assert process.is_ready(plan)
            open_accounts(self.state_dir / "owner.json", f"http://127.0.0.1:{plan.port}", self.memory)

    def close(self) -> None:
        """The last one finds everything in order."""
        began = time.monotonic()
        with self.server(dies_at=None) as (process, plan):
            assert process.is_ready(plan)
            self._look(began)

    @contextmanager
    def server(self, *, dies_at: int | None) -> Iterator[tuple[Server, Round]]:
        plan = Round(str(self.state_dir), str(self.host_file), free_port(), self.database, dies_at)
        with self.servers.serving(plan) as process:
            yield process, plan

    def _let_work(self, process: Server, port: int, way: str) -> None:
        owner, url = self.state_dir / "owner.json", f"http://127.0.0.1:{port}"
        with customers(owner, url, self.memory, self.dice.randrange(2**32)):
            if way == "working":
                time.sleep(self.dice.random() * max(0.6, self.opens_in_s / 2))
                self.working += 1
            else:
                # It kills itself, or had more steps before it than it took.
                process.wait(max(1.0, self.opens_in_s))
                self.at_a_step += 1
            process.kill()

    def _look(self, began: float) -> None:
        """Once it answers, everything is settled or being settled."""
        if self.owed is not None:
            self._compare_debts(self.owed, began)
        deadline = time.monotonic() + 20
        while complaints := books.read(self.database, lambda c: books.orphans(c, read_host(self.host_file))):
            assert time.monotonic() < deadline, (complaints, self._log())
            time.sleep(0.05)
        for one in self.lost:
            found = books.read(self.database, lambda conn, id_=one.id: books.charged(conn, id_))
            assert (found.rate_msats, found.uses) == (0, frozenset()), (one, found)
            assert found.until is None or found.until <= one.at + TOLERANCE, (one, found)
        self.lost.clear()

    def _compare_debts(self, before: books.Flow, began: float) -> None:
        """While nobody could pay, nobody got into debt."""
        after = books.read(self.database, books.debts)
        alive = before.unsettled_sats + before.sats_per_s * (time.monotonic() - began)
        assert after - before.debt_sats <= alive + 1, (before, after)
        self.owed = None

    def _look_at_the_dead(self) -> None:
        died = datetime.now(UTC)
        found = books.read(self.database, lambda conn: books.faults(conn, self.memory.answered))
        assert found == [], (found, self._log())
        if self.dice.random() < 0.2:
            self._lose_one(died)
        if self.dice.random() < 0.03:
            self.owed = books.read(self.database, lambda conn: books.flow(conn, died))
            # Being away is the fault.
            time.sleep(3)

    def _lose_one(self, died: datetime) -> None:
        held = read_host(self.host_file)
        running = books.read(self.database, _running)
        if there := sorted(running & held.boxes.keys()):
            one = self.dice.choice(there)
            held.lose(one)
            write_host(self.host_file, held)
            self.lost.append(Lost(one, died))

    def _log(self) -> str:
        file = self.state_dir.with_suffix(".log")
        return file.read_text()[-4000:] if file.exists() else "no log"


def _running(conn: Connection) -> set[str]:
    return set(conn.execute(select(sandboxes.c.id).where(sandboxes.c.state.in_(RUNNING))).scalars())


def run(folder: Path, database: str, kills: int) -> None:
    with forking_servers() as servers:
        killer = Killer(servers, folder, database, random.Random(SEED))
        killer.open()
        for number in range(kills):
            killer.strike()
            if number % 25 == 24:
                print(f"{number + 1} kills: {killer.opening} opening, {killer.at_a_step} at a step,", end=" ")
                print(f"{killer.working} working; {sum(killer.memory.done.values())} acts done", flush=True)
        killer.close()
    print(dict(killer.memory.done), dict(killer.memory.refused), flush=True)
    missing = DEEDS - killer.memory.done.keys()
    assert not missing or kills < 200, f"nobody ever managed {missing}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_ledger_is_whole_after_some_kills(tmp_path: Path, database_url: str) -> None:
    run(tmp_path, database_url, FEW)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_the_ledger_is_whole_after_each_of_five_hundred_kills(tmp_path: Path, database_url: str) -> None:
    run(tmp_path, database_url, MANY)
