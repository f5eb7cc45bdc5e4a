"""The backend behind OCI runtimes passes the contract suite on this host, save what it says it cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.guest import FolderMount
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.kernel.errors import NotAvailable
from sandboxer.wiring.oci import DEVIATIONS, open_oci
from tests.support.oci import require_runtime
from tests.support.real_backend import clear, make_order, remove_leftovers, settings_for, state_folder

DECLARED: dict[str, dict[str, str]] = {"runc": {}, "runsc": DEVIATIONS}


# `make test-slow` builds runsc first.
RUNTIMES = ["runc", pytest.param("runsc", marks=pytest.mark.slow)]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=RUNTIMES)
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


@pytest.mark.asyncio(loop_scope="module")
async def test_a_folder_that_root_inside_must_not_write_to_is_refused(backend: NamespacesBackend) -> None:
    with pytest.raises(NotAvailable):
        backend.check_folders([FolderMount(path="workspace", is_read_only=True)])
    order = replace(make_order(), folders=(FolderMount(path="workspace", is_read_only=True),))
    with pytest.raises(NotAvailable):
        await backend.provision(order)
    assert not await backend.inventory()
