"""One schedule: a seed chooses who there is, which acts are possible, and what happens. The same again later.

Each schedule leaves out many of the acts, another share each time: those that remain meet more often.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sandboxer.kernel.errors import SandboxerError, Unavailable
from tests.money.model.fresh import made_ready
from tests.money.model.oracle import Oracle
from tests.money.model.people import Cast
from tests.money.model.world import World
from tests.support.statements import shared_statements

STEPS = 22
EVERYTHING = "everything"
# How often a server dies in the middle of an act.
DEATHS = 0.06
LONGEST_S = 60.0
# How many of all acts a schedule can play: with few of them the same things meet again and again.
SHARES = (0.2, 0.4, 0.6)


@dataclass
class Run:
    """What acts have at hand."""

    world: World
    cast: Cast
    oracle: Oracle
    dice: random.Random
    # What the act is done to, in which state, for the table of what was covered. EVERYTHING: all there is.
    touched: str = ""
    extras: dict[str, Any] = field(default_factory=dict)

    def present(self) -> frozenset[str]:
        """The states in which anything is, by kind."""
        found = {f"sandbox:{one.state}" for one in self.cast.things.values()}
        found |= {one.standing for one in self.cast.people}
        return frozenset(found | self.extras.get("payment states", set()))


Act = Callable[[Run], Coroutine[Any, Any, None]]


class Broken(AssertionError):
    """A schedule after which something is not true."""


@dataclass
class Report:
    seed: int
    steps: list[str] = field(default_factory=list)
    # It took too long, and was left in the middle.
    is_abandoned: bool = False
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)


Begin = Callable[[Run], Coroutine[Any, Any, None]]


@dataclass(frozen=True)
class Play:
    """What can be played: acts by name, with their weight, and what is set up before."""

    acts: Mapping[str, tuple[int, Act]]
    begin: Begin
    # What it runs in: a chain to reach, settings to give.
    around: Callable[[Run], AbstractAsyncContextManager[dict[str, Any]]]
    # Before the oracle looks, and once at the end.
    check: Begin
    end: Begin


async def run_schedule(seed: int, play: Play, *, database: str | None = None, steps: int = STEPS) -> Report:
    """Raises Broken with the list of what was done."""
    report = Report(seed)
    with tempfile.TemporaryDirectory(prefix="model-") as folder, shared_statements():
        dice = random.Random(seed)
        world = World(Path(folder) / "state", database, {})
        cast = Cast()
        run = Run(world, cast, Oracle(world, cast), dice)
        limit = asyncio.timeout(LONGEST_S)
        try:
            with made_ready(Path(folder), database):
                await _open_and_play(run, play, report, steps, limit)
        except Exception as error:
            # A busy machine: nothing that was looked at was wrong, and the rest is left undone. Nobody pauses
            # the database here, so one that does not answer is starved too.
            report.is_abandoned = limit.expired() or isinstance(error, Unavailable)
            if not report.is_abandoned:
                raise Broken(_shown(report, error)) from error
    return report


async def _open_and_play(run: Run, play: Play, report: Report, steps: int, limit: asyncio.Timeout) -> None:
    async with play.around(run) as settings:
        run.world.also(settings)
        try:
            async with limit:
                await _play(run, play, report, steps)
        finally:
            with suppress(Exception):
                await asyncio.wait_for(run.world.close(), 30)


async def _play(run: Run, play: Play, report: Report, steps: int) -> None:
    await run.world.open()
    await play.begin(run)
    names = chosen(run.dice, play.acts)
    weights = [play.acts[name][0] for name in names]
    for _ in range(steps):
        name = run.dice.choices(names, weights)[0]
        await _step(run, play, name, play.acts[name][1], report)
    report.steps.append("the end")
    await play.end(run)
    await run.oracle.check()


def chosen(dice: random.Random, acts: Mapping[str, tuple[int, Act]]) -> list[str]:
    """The names of those that this schedule can play."""
    share = dice.choice(SHARES)
    return [name for name in acts if dice.random() < share] or list(acts)


async def _step(run: Run, play: Play, name: str, act: Act, report: Report) -> None:
    world = run.world
    run.touched, present = "", run.present()
    dies = run.dice.random() < DEATHS
    if dies:
        world.fuse = run.dice.randrange(8)
    report.steps.append(name + (" (dies)" if dies else ""))
    try:
        await act(run)
    except SandboxerError as error:
        report.steps[-1] += f" -> {type(error).__name__}"
    except AssertionError:
        raise
    except Exception as error:
        # A server that was killed stumbles in many ways.
        if not world.is_dead:
            raise
        report.steps[-1] += f" -> {type(error).__name__}"
    report.steps[-1] += f" [{run.touched}]"
    touched = present if run.touched == EVERYTHING else {run.touched} - {""}
    report.pairs.update((state, name) for state in touched)
    if world.is_dead:
        await world.kill()
        await world.open()
    world.fuse = None
    await world.calm()
    await play.check(run)
    await run.oracle.check()
    run.oracle.note_rates()


def _shown(report: Report, error: Exception) -> str:
    lines = "\n".join(f"  {number}. {step}" for number, step in enumerate(report.steps, 1))
    return f"seed {report.seed}: {type(error).__name__}: {error}\n{lines}"
