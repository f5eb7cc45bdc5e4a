"""The backend behind OCI runtimes passes the contract suite on this host, save what it says it cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.wiring.oci import open_oci
from tests.support.oci import require_runtime
from tests.support.real_backend import clear, make_order, remove_leftovers, settings_for, state_folder

DEVIATIONS: dict[str, dict[str, str]] = {
    "runc": {},
    "runsc": {
        "freezing_stops_every_process_and_leaves_files_readable": "gVisor stops whole,"
        " its supervisor too: files can be read once it is thawed",
        "kill_ends_children_that_left_their_parent_and_session": "its processes are in no cgroup of the host:"
        " whoever leaves the session of a command outlives it until the sandbox ends",
    },
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(DEVIATIONS))
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[NamespacesBackend]:
    runtime = require_runtime(request.param)
    with state_folder() as state:
        async with open_oci(settings_for(state), runtime=runtime) as opened:
            yield opened
            await clear(opened)
        remove_leftovers(opened)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_the_backend_keeps_the_contract(backend: NamespacesBackend, check: Check) -> None:
    deviations = DEVIATIONS[(await backend.fingerprint()).facts["runtime"]]
    result = await run_check(check, Bench(backend, make_order), deviation=deviations.get(check.name))
    assert result.is_fine, result.detail
    assert not await backend.inventory()
