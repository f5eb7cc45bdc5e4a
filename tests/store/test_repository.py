"""The one way to keep a record, with a noun of its own: a lamp that is lit, put out and broken."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import pytest
from sqlalchemy import Column, Connection, Float, Integer, MetaData, Table, Text, insert, select, update

from sandboxer.kernel.clock import Clock, SystemClock
from sandboxer.kernel.errors import Conflict, IllegalTransition, NotFound
from sandboxer.store.engine import Store
from sandboxer.store.metadata import JsonValue, UtcDateTime
from sandboxer.store.reconciler import FAR, Reconciler
from sandboxer.store.repository import RememberedRepository, Repository
from sandboxer.store.rows import MAPPING, Rows, enumerated, optional, seconds
from sandboxer.store.steps import Change, Lifecycle, Step, stepped
from tests.support.clock import eventually

NOW = datetime(2026, 11, 17, 1, 0, tzinfo=UTC)


class State(StrEnum):
    OFF = "off"
    ON = "on"
    BROKEN = "broken"


class Signal(StrEnum):
    LIGHT = "light"
    BREAK = "break"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lamp:
    id: str
    version: int = 0
    account: str = "acc_1"
    state: State = State.OFF
    reason: str = "made"
    labels: Mapping[str, str] = field(default_factory=dict)
    warmth: timedelta | None = None
    created_at: datetime = NOW
    state_since: datetime = NOW
    ended_at: datetime | None = None


scratch = MetaData()
lamps = Table(
    "lamps",
    scratch,
    Column("id", Text, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("account", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("labels", JsonValue, nullable=False),
    Column("warmth_s", Float),
    Column("created_at", UtcDateTime, nullable=False),
    Column("state_since", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    # Follows from the record, and is no field of it.
    Column("is_lit", Integer, nullable=False),
)
emitted = Table("emitted", scratch, Column("id", Text), Column("what", Text))
rows = Rows(
    lamps,
    Lamp,
    prefix="lmp_",
    over=[State.BROKEN],
    cells={"state": enumerated(State), "labels": MAPPING, "warmth": optional(seconds("warmth_s"))},
    derived={"is_lit": lambda one: int(one.state is State.ON)},
)
LampStep = Step[Lamp, Signal]
LIFECYCLE = Lifecycle(
    {(State.OFF, Signal.LIGHT): State.ON, (State.ON, Signal.BREAK): State.BROKEN},
    ended=frozenset({State.BROKEN}),
)


class Emitting:
    """As every noun does: one row for each step, in its transaction."""

    noun = "lamp"

    def _record(self, conn: Connection, change: Change[Lamp, LampStep]) -> None:
        what = [entry.step.kind or entry.after.state.value for entry in change.entries] or ["new"]
        conn.execute(insert(emitted), [{"id": change.after.id, "what": one} for one in what])


class Lamps(Emitting, Repository[Lamp, LampStep]):
    pass


class RememberedLamps(Emitting, RememberedRepository[Lamp, LampStep]):
    pass


@pytest.fixture
async def lit_store(store: Store) -> Store:
    await store.write(scratch.create_all)
    return store


def light(**more: object) -> LampStep:
    return Step(signal=Signal.LIGHT, actor="me", reason="dark", **more)  # type: ignore[arg-type]


def shatter() -> LampStep:
    return Step(signal=Signal.BREAK, actor="me", reason="fell")


def opened(store: Store) -> Lamps:
    return Lamps(store, SystemClock(), rows, LIFECYCLE)


async def events(store: Store) -> list[str]:
    return await store.read(lambda conn: list(conn.execute(select(emitted.c.what)).scalars()))


async def test_a_record_comes_back_as_it_was_written(lit_store: Store) -> None:
    lamp = Lamp(id="lmp_1", labels={"room": "hall"}, warmth=timedelta(minutes=1.5))
    repository = opened(lit_store)
    assert await repository.create(lamp) == lamp
    assert await repository.find("lmp_1") == lamp
    assert await repository.find("lmp_2") is None


async def test_steps_go_through_the_table_with_their_events_in_one_transaction(lit_store: Store) -> None:
    repository = opened(lit_store)
    await repository.create(Lamp(id="lmp_1"))
    after = await repository.move("lmp_1", light(changes={"labels": {"a": "b"}}), shatter())
    assert (after.state, after.version, after.reason, after.labels) == (
        State.BROKEN,
        2,
        "fell",
        {"a": "b"},
    )
    assert after.ended_at is not None
    assert after.state_since == after.ended_at
    assert await repository.find("lmp_1") == after
    assert await events(lit_store) == ["new", "on", "broken"]
    with pytest.raises(IllegalTransition):
        await repository.move("lmp_1", light())
    with pytest.raises(NotFound):
        await repository.move("lmp_2", light())


async def test_nothing_stays_of_a_step_that_was_refused_in_its_transaction(lit_store: Store) -> None:
    repository, seen = opened(lit_store), []
    repository.on_change(lambda record, steps: seen.append(record))
    lamp = await repository.create(Lamp(id="lmp_1"))

    def refuse(conn: Connection, after: Lamp) -> None:
        assert after.state is State.ON
        raise Conflict(why="the fuse is gone")

    with pytest.raises(Conflict, match="fuse"):
        await repository.move("lmp_1", light(check_stored=refuse))

    def fail(conn: Connection) -> None:
        raise Conflict(why="no wire")

    with pytest.raises(Conflict, match="wire"):
        await repository.move("lmp_1", light(also=fail))
    assert await repository.find("lmp_1") == lamp
    assert await events(lit_store) == ["new"]
    assert seen == [lamp]


async def test_who_lost_the_fence_looks_again_and_decides_anew(lit_store: Store) -> None:
    repository = opened(lit_store)
    await repository.create(Lamp(id="lmp_1", labels={}))

    def one_more(lamp: Lamp) -> Mapping[str, object]:
        return {"labels": {**lamp.labels, str(len(lamp.labels)): "x"}}

    steps = [Step(signal=None, actor="me", reason="more", kind="more", decide=one_more) for _ in range(5)]
    async with asyncio.TaskGroup() as group:
        for step in steps:
            group.create_task(repository.move("lmp_1", step))
    after = await repository.find("lmp_1")
    assert after is not None
    assert len(after.labels) == 5 == after.version
    assert after.reason == "made"


async def test_a_write_leaves_alone_what_the_step_did_not_change(lit_store: Store) -> None:
    repository = opened(lit_store)
    lamp = await repository.create(Lamp(id="lmp_1"))
    # Without a version: something that is not fenced, as a job's output.
    await lit_store.write(lambda conn: conn.execute(update(lamps).values(labels={"beside": "it"})) and None)
    await lit_store.write(lambda conn: repository.step(conn, lamp, light()))
    after = await repository.find("lmp_1")
    assert after is not None
    assert (after.state, after.labels) == (State.ON, {"beside": "it"})
    with pytest.raises(Conflict, match="someone else"):
        await lit_store.write(lambda conn: repository.step(conn, lamp, light()))


async def test_living_and_owners_leave_out_what_is_over_or_another_noun(lit_store: Store) -> None:
    repository = opened(lit_store)
    for number in range(3):
        await repository.create(Lamp(id=f"lmp_{number}", account=f"acc_{number % 2}"))
    await repository.move("lmp_0", light(), shatter())
    living = await lit_store.read(rows.living)
    assert {one.id for one in living} == {"lmp_1", "lmp_2"}
    mine = await lit_store.read(lambda conn: rows.living(conn, "acc_0"))
    assert [one.id for one in mine] == ["lmp_2"]
    owners = await lit_store.read(lambda conn: rows.owners(conn, ["lmp_0", "lmp_1", "snp_1"]))
    assert owners == {"lmp_0": "acc_0", "lmp_1": "acc_1"}


async def test_the_memory_follows_the_database_and_its_watchers_hear_of_it(lit_store: Store) -> None:
    repository = RememberedLamps(lit_store, SystemClock(), rows, LIFECYCLE)
    heard: list[tuple[str, Sequence[LampStep]]] = []
    repository.on_change(lambda record, steps: heard.append((record.state.value, steps)))
    await repository.create(Lamp(id="lmp_1"))
    step = light()
    assert repository.peek("lmp_1") == Lamp(id="lmp_1")
    lit = await repository.move("lmp_1", step)
    assert repository.peek("lmp_1") == lit
    await repository.move("lmp_1", shatter())
    assert repository.peek("lmp_1") is None
    assert list(repository.living()) == []
    assert [state for state, _ in heard] == ["off", "on", "broken"]
    assert heard[1][1] == (step,)


async def test_a_write_by_someone_else_is_learnt_of_at_the_fence(lit_store: Store) -> None:
    repository, other = RememberedLamps(lit_store, SystemClock(), rows, LIFECYCLE), opened(lit_store)
    await repository.create(Lamp(id="lmp_1"))
    await other.move("lmp_1", light())
    assert repository.peek("lmp_1") == Lamp(id="lmp_1")
    with pytest.raises(IllegalTransition):
        # It thought that the lamp was off; it looks again, and it is on already.
        await repository.move("lmp_1", light())
    assert (found := repository.peek("lmp_1")) is not None
    assert found.state is State.ON


async def test_an_older_answer_does_not_undo_an_end(lit_store: Store) -> None:
    repository = RememberedLamps(lit_store, SystemClock(), rows, LIFECYCLE)
    lamp = await repository.create(Lamp(id="lmp_1"))
    await repository.move("lmp_1", light(), shatter())
    repository.announce(replace(lamp, version=1))
    assert repository.peek("lmp_1") is None


def test_a_step_within_its_state_changes_neither_reason_nor_since() -> None:
    lamp = Lamp(id="lmp_1", state=State.ON)
    step: LampStep = Step(signal=None, actor="me", reason="wiped", kind="wiped", changes={"account": "acc_2"})
    after = stepped(lamp, step, LIFECYCLE, NOW + timedelta(hours=1))
    assert after == replace(lamp, version=1, account="acc_2")


class Rounds(Reconciler):
    def __init__(self, store: Store, clock: Clock, retry: timedelta) -> None:
        super().__init__("rounds", store, clock, retry=retry)
        self.tried: list[str] = []
        self.fails = {"bad": 2, "round": 1}

    async def _round(self) -> datetime:
        if self.fails["round"]:
            self.fails["round"] -= 1
            raise ConnectionError("nobody is there")
        for id_ in ("bad", "good"):
            await self._attend(id_, lambda id_=id_: self._act(id_))  # type: ignore[misc]
        return min(self._look_at(id_, FAR) for id_ in ("bad", "good"))

    async def _act(self, id: str) -> None:
        self.tried.append(id)
        if self.fails.get(id):
            self.fails[id] -= 1
            raise ValueError(id)


# Zero: its pause is over before the round is, as after a long one on a busy machine.
@pytest.mark.parametrize("retry", [timedelta(milliseconds=1), timedelta(0)], ids=["soon", "at once"])
async def test_one_records_trouble_stops_nobody_and_is_tried_again(store: Store, retry: timedelta) -> None:
    rounds = Rounds(store, SystemClock(), retry)
    task = asyncio.create_task(rounds.run())
    try:
        await eventually(lambda: rounds.tried.count("bad") == 3)
        assert rounds.tried.count("good") == 3
    finally:
        task.cancel()
