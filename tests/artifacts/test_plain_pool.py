"""Snapshots and volumes where there is no btrfs: plain folders, copied file by file, keep the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.contract import Capability
from sandboxer.backends.namespaces import NamespacesBackend, open_backend
from sandboxer.backends.namespaces.pool import PoolKind
from tests.support.real_backend import clear, make_order, require_walls, settings_for, state_folder

pytestmark = pytest.mark.asyncio(loop_scope="module")
OURS = [check for check in CHECKS if check.needs in (Capability.SNAPSHOT, Capability.VOLUMES)]
# What a plain folder cannot do, and why.
DEVIATIONS: dict[str, str] = {}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain() -> AsyncIterator[NamespacesBackend]:
    require_walls()
    with state_folder() as state, pytest.MonkeyPatch.context() as without:
        without.setattr("sandboxer.backends.namespaces.pool.shutil.which", lambda _: None)
        async with open_backend(settings_for(state)) as opened:
            without.undo()
            assert opened.dependencies.pool.kind is PoolKind.PLAIN
            yield opened
            await clear(opened)
            opened.dependencies.cgroups.remove_parents()


@pytest.mark.parametrize("check", OURS, ids=lambda check: check.name)
async def test_plain_folders_keep_the_contract(plain: NamespacesBackend, check: Check) -> None:
    result = await run_check(check, Bench(plain, make_order), deviation=DEVIATIONS.get(check.name))
    assert result.is_fine, result.detail
    assert not await plain.inventory()
    assert not await plain.kept()
    assert not await plain.volumes()
