"""Programs that know nothing of a proxy, behind gVisor: the same tests as on walls of namespaces."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.access.egress.test_led import (  # noqa: F401
    names,
    path,
    repository,
    test_any_protocol_reaches_a_host_that_a_rule_allows_by_name_or_by_address,
    test_plain_http_is_judged_by_each_request_and_refused_in_words,
    test_ssh_and_git_over_it_work,
    test_tls_goes_through_whole_and_a_refusal_is_an_alert,
    trusted,
)
from tests.access.egress.world import Names
from tests.support.egress_inside import settings_of
from tests.support.http.real import on_real_walls
from tests.support.http.served import Served
from tests.support.oci import settings_behind_gvisor

# `make test-slow` builds runsc first.
pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(
    names: Names,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Served]:
    folder = tmp_path_factory.mktemp("led")
    settings = settings_behind_gvisor(settings_of(folder / "state"), folder / "profiles")
    async with on_real_walls(settings, disk_mb=128) as running:
        yield running
