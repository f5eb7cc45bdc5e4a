"""A bad node stops nothing that was paid for; what a mistake put to sleep wakes when it is made good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.payments import records
from sandboxer.payments.lifecycle import State
from testchains.evm import Anvil
from tests.payments.x402.lying_node import OTHER_FORK, LyingNode
from tests.support.chains.evm import evm
from tests.support.http.served import Served, serving
from tests.support.http.signed import Credentials
from tests.support.http.x402 import agent, settings_with

__all__ = ["evm"]


@pytest.fixture
def node(evm: Anvil) -> Iterator[LyingNode]:
    with LyingNode(evm) as opened:
        yield opened


@pytest.fixture
async def served(evm: Anvil, tmp_path: Path, node: LyingNode) -> AsyncIterator[Served]:
    given = settings_with(evm, tmp_path, network={"rpc_url": node.url, "missing_blocks": 3})
    # What the cheapest create pays lasts two minutes: less than an ordinary wake asks for.
    settings = given.model_copy(update={"pricing": {"rates": {"running_msats": 800}}})
    async with serving(settings, {"ext.namespaces": Scripted(name="ext.namespaces")}) as running:
        yield running


async def until(
    what: Callable[[], Awaitable[Any]], wanted: object, *, seconds: float = 30, blocks: Anvil | None = None
) -> None:
    async with asyncio.timeout(seconds):
        while (found := await what()) != wanted:
            assert found is not None
            if blocks is not None:
                blocks.mine()
            await asyncio.sleep(0.1)


async def _is_more(count: Callable[[], Awaitable[int]], than: int) -> bool:
    return await count() > than


async def test_a_node_that_is_behind_stops_nothing_and_a_mistake_is_made_good(
    served: Served, evm: Anvil, node: LyingNode
) -> None:
    wallet = evm.new_wallet(5_000_000)
    async with agent(served, wallet) as http:
        made = (await http.post("/v1/sandboxes", json={})).json()
    mine = served.as_(Credentials(made["key"]["public_key"], made["key"]["secret_key"]))
    store = served.platform.store

    async def state() -> str:
        return str((await mine.get(f"/v1/sandboxes/{made['id']}")).json()["state"])

    async def payment() -> State:
        return (await store.read(lambda conn: records.load(conn, made["payment"]["id"]))).state

    async def looks() -> int:
        return (await store.read(lambda conn: records.load(conn, made["payment"]["id"]))).looks

    # One block behind: the receipt is null, the nonce unspent.
    before = await looks()
    node.behind = 1
    await until(lambda: _is_more(looks, before), True)
    assert (await state(), await payment()) == ("ready", State.CONFIRMED)
    node.is_honest()

    # A branch of its own, long enough to be believed: frozen first, while everything runs on.
    node.lies = OTHER_FORK
    await until(payment, State.DOUBTED)
    assert await state() == "ready"
    refused = await mine.post("/v1/sandboxes", {})
    assert refused.status_code == 402, refused.text
    await until(state, "reaped", blocks=evm)

    # It was wrong all the time.
    node.is_honest()
    await until(payment, State.CONFIRMED)
    await until(state, "ready")
