"""How many schedules the model needs to find a mend that was taken back.

`python -m tests.money.model.search [first seed] [mend …]` prints a table; with `likely` as the first seed,
each search begins with a schedule that plays the act which is made for the mend.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import time
from dataclasses import dataclass

from tests.money.model.lives import FUNDED, FUNDS
from tests.money.model.mutations import MUTATIONS, Mutation
from tests.money.model.paying import draw_manners
from tests.money.model.play import PLAY
from tests.money.model.schedule import DEATHS, Broken, chosen, run_schedule

MOST = 2000


@dataclass(frozen=True)
class Found:
    mutation: Mutation
    seed: int
    # Of how many schedules, the last one found it; how many before it were wrong without the mutation too.
    schedules: int
    alarms: int
    seconds: float
    # What was not true any more.
    said: str

    def row(self) -> str:
        said = self.said.replace("|", "/")
        return f"| {self.mutation.mend} | {self.mutation.what} | {self.seed} | {self.schedules} | {said} |"


def search(mutation: Mutation, first: int, *, most: int = MOST) -> Found | None:
    """None: not found. What is wrong without the mutation too, the model has not found."""
    began, alarms = time.monotonic(), 0
    for number in range(most):
        seed = first + number
        with mutation.applied():
            found = _wrong(seed)
        if found is None:
            continue
        if _wrong(seed) is not None:
            alarms += 1
            continue
        took = time.monotonic() - began
        return Found(mutation, seed, number + 1, alarms, took, found)
    return None


def likely(mutation: Mutation, first: int) -> int:
    """The first schedule from there on that begins with the act that is made for it.

    Only a hint where to begin: what `begin` and `run_schedule` draw before the first act is drawn here too.
    """
    for seed in range(first, first + MOST):
        dice = random.Random(seed)
        for _ in range(FUNDED):
            dice.choice(FUNDS)
        draw_manners(dice)
        names = chosen(dice, PLAY.acts)
        first_act = dice.choices(names, [PLAY.acts[name][0] for name in names])[0]
        if first_act == mutation.act and dice.random() >= DEATHS:
            return seed
    return first


def _wrong(seed: int) -> str | None:
    try:
        asyncio.run(run_schedule(seed, PLAY))
    except Broken as broken:
        return str(broken).partition("\n")[0].partition(": ")[2]
    return None


def main() -> None:
    logging.getLogger("sandboxer").setLevel(logging.CRITICAL)
    first, wanted = (sys.argv[1:] or ["1"])[0], sys.argv[2:]
    print("| Mend | Without it | Seed | Schedules | What the model said |\n|---|---|---|---|---|")
    for mutation in MUTATIONS:
        if wanted and mutation.mend not in wanted:
            continue
        found = search(mutation, likely(mutation, 1) if first == "likely" else int(first))
        text = (
            f"| {mutation.mend} | {mutation.what} | – | not in {MOST} | |" if found is None else found.row()
        )
        print(text, flush=True)


if __name__ == "__main__":
    main()
