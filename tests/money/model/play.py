"""All that can be played, put together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.money.model import evm, lives, paying, rails, routes, scenarios, selling
from tests.money.model.schedule import Play, Run
from tests.payments.invoices.memory_chain import MemoryChain


async def begin(run: Run) -> None:
    await lives.begin(run)
    await paying.begin(run)


@contextmanager
def around(run: Run) -> Iterator[dict[str, Any]]:
    run.extras["evm"] = chain = evm.Chain(run.world.host.truth.now)
    run.extras["ltc"] = ltc = MemoryChain()
    with evm.served(chain), selling.served(ltc), rails.around(run) as more:
        yield {**evm.SETTINGS, **selling.SETTINGS, **more}


async def check(run: Run) -> None:
    await paying.check(run)
    await rails.check(run)


async def end(run: Run) -> None:
    await paying.end(run)
    await rails.check(run)


@contextmanager
def alone(_: Run) -> Iterator[dict[str, Any]]:
    yield {}


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
