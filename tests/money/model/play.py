"""All that can be played, put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.money.model import evm, lives, paying, rails, routes, scenarios, selling
from tests.money.model.loopback import serving
from tests.money.model.schedule import Play, Run


async def begin(run: Run) -> None:
    await lives.begin(run)
    await paying.begin(run)


@asynccontextmanager
async def around(run: Run) -> AsyncIterator[dict[str, Any]]:
    run.extras["evm"] = chain = evm.Chain(run.world.host.truth.now)
    async with serving(chain.answer) as url:
        with rails.around(run, evm.settings(url)) as settings:
            yield {**selling.SETTINGS, **settings}


async def check(run: Run) -> None:
    await paying.check(run)
    await rails.check(run)


async def end(run: Run) -> None:
    await paying.end(run)
    await rails.check(run)


@asynccontextmanager
async def alone(_: Run) -> AsyncIterator[dict[str, Any]]:
    # Written down: else the world would be asked what coins are worth.
    yield {"fixed_rates": selling.RATES}


async def nothing(_: Run) -> None:
    return None


# Lives, budgets, clocks and deaths; and the same with payments, invoices and gift cards on chains that lie.
LIVES = Play(acts=lives.ACTS, begin=lives.begin, around=alone, check=nothing, end=nothing)
PLAY = Play(
    acts={
        **lives.ACTS,
        **paying.ACTS,
        **selling.ACTS,
        **scenarios.ACTS,
        **rails.ACTS,
        **routes.ACTS,
    },
    begin=begin,
    around=around,
    check=check,
    end=end,
)
