"""What a sandbox is told of itself, and what it may make: the same behind gVisor, by the same tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.agents.test_inception import (  # noqa: F401
    test_a_clone_has_none_of_its_origins_authority,
    test_a_sandbox_makes_uses_and_ends_another,
    test_a_stolen_description_makes_nobody_another,
    test_only_root_inside_reaches_the_socket,
    test_what_a_request_claims_about_its_caller_never_wins,
)
from tests.agents.test_inside import (  # noqa: F401
    test_a_new_sandbox_knows_what_it_is,
    test_it_is_true_again_after_a_resume_a_restore_and_in_a_clone,
    test_what_changes_is_told_before_the_change_is_answered,
)
from tests.support.http.real import on_real_walls, settings_on_walls
from tests.support.http.served import Served
from tests.support.oci import settings_behind_gvisor

# `make test-slow` builds runsc first.
pytestmark = pytest.mark.slow


@asynccontextmanager
async def behind(folder: Path, *, charging: bool) -> AsyncIterator[Served]:
    walls = settings_on_walls(folder / "state", charging=charging)
    async with on_real_walls(settings_behind_gvisor(walls, folder / "profiles"), disk_mb=128) as running:
        yield running


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Served]:
    async with behind(tmp_path, charging=True) as running:
        yield running


@pytest.fixture
async def free(tmp_path: Path) -> AsyncIterator[Served]:
    async with behind(tmp_path, charging=False) as running:
        yield running
