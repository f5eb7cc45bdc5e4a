"""The default backend passes the contract suite on this host."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.contract import Presence
from sandboxer.backends.guest import Command, Exit
from sandboxer.backends.namespaces import NamespacesBackend, open_backend
from tests.support.real_backend import (
    clear,
    make_order,
    remove_leftovers,
    require_walls,
    settings_for,
    state_folder,
)

DEVIATIONS: dict[str, str] = {}


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def backend() -> AsyncIterator[NamespacesBackend]:
    require_walls()
    with state_folder() as state:
        async with open_backend(settings_for(state)) as opened:
            yield opened
            await clear(opened)
        remove_leftovers(opened)


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_the_default_backend_keeps_the_contract(backend: NamespacesBackend, check: Check) -> None:
    result = await run_check(check, Bench(backend, make_order), deviation=DEVIATIONS.get(check.name))
    assert result.is_fine, result.detail
    assert not await backend.inventory()


async def test_a_backend_that_was_closed_finds_its_sandboxes_when_it_is_opened_again() -> None:
    require_walls()
    with state_folder() as state:
        order = make_order()
        async with open_backend(settings_for(state, pool_size_mb=512)) as first:
            handle = await first.provision(order)
            async with await (await first.guest(handle)).run(
                Command(argv=("/bin/sh", "-c", "echo before; read line; echo $line"), has_stdin=True),
                process_id="prc_1",
            ):
                pass
        async with open_backend(settings_for(state, pool_size_mb=512)) as second:
            assert await second.inventory() == [order.sandbox_id]
            assert (await second.recover(handle)).presence is Presence.RUNNING
            async with await (await second.guest(handle)).attach("prc_1") as process:
                await process.write_stdin(b"after\n")
                items = [item async for item in process.output()]
            assert b"".join(item.data for item in items if not isinstance(item, Exit)) == b"before\nafter\n"
            await clear(second)
        remove_leftovers(second)
