"""The backend on an SSH host passes the contract suite against a real sshd and a real docker engine, save
what it says it cannot.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
import pytest_asyncio

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.compose_ssh import DEVIATIONS, ComposeSshBackend, open_compose_ssh
from sandboxer.backends.contract import Backend
from tests.support.real_backend import make_order
from tests.support.remote_host import RemoteMachine, remote_machine
from tests.support.reported import demand_a_true_meter, demand_a_true_report, demand_an_honest_estimate

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def machine() -> AsyncIterator[RemoteMachine]:
    async with remote_machine() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def backend(machine: RemoteMachine) -> AsyncIterator[ComposeSshBackend]:
    async with open_compose_ssh(machine.settings()) as opened:
        yield opened
        for sandbox_id in await opened.inventory():
            await opened.teardown(sandbox_id)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_the_backend_keeps_the_contract(
    machine: RemoteMachine, backend: ComposeSshBackend, check: Check
) -> None:
    def reopen() -> AbstractAsyncContextManager[Backend]:
        return open_compose_ssh(machine.settings())

    result = await run_check(check, Bench(backend, make_order, reopen), deviation=DEVIATIONS.get(check.name))
    assert result.is_fine, result.detail
    assert not await backend.inventory()
    assert await machine.is_clean()


async def test_the_fingerprint_says_what_the_host_is(backend: ComposeSshBackend) -> None:
    seen = await backend.fingerprint()
    assert seen.healthy
    assert {"docker", "compose", "kernel", "architecture", "free_mb"} <= set(seen.facts)
    # Whoever writes a compose file can have the host.
    assert not seen.walls
    assert [lack.what for lack in seen.lacks] == ["walls against strangers"]


async def test_what_it_says_of_money_of_use_and_of_removal_is_so(backend: ComposeSshBackend) -> None:
    await demand_an_honest_estimate(backend)
    await demand_a_true_meter(backend)
    await demand_a_true_report(backend, {"container", "network", "folder"})
