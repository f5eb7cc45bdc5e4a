"""The backend behind OCI runtimes passes the contract suite on this host, save what it says it cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.wiring.oci import DEVIATIONS, open_oci
from tests.support.oci import require_runtime
from tests.support.real_backend import clear, make_order, remove_leftovers, settings_for, state_folder

DECLARED: dict[str, dict[str, str]] = {"runc": {}, "runsc": DEVIATIONS}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(DECLARED))
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
    deviations = DECLARED[(await backend.fingerprint()).facts["runtime"]]
    result = await run_check(check, Bench(backend, make_order), deviation=deviations.get(check.name))
    assert result.is_fine, result.detail
    assert not await backend.inventory()
