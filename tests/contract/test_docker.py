"""Containers of Docker and of Podman pass the contract suite, save what the backend says they cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.contract import Capability, capabilities_of
from sandboxer.backends.docker.backend import DockerBackend
from sandboxer.wiring.docker import DEVIATIONS
from tests.support.engines import backend_on, docker_socket, podman_socket, require_engine
from tests.support.real_backend import make_order

# The engines are large: the gate does not install them.
pytestmark = pytest.mark.slow
SOCKETS: dict[str, Callable[[], AbstractAsyncContextManager[str]]] = {
    "docker": docker_socket,
    "podman": podman_socket,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=SOCKETS)
async def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DockerBackend]:
    require_engine(request.param)
    state: Path = tmp_path_factory.mktemp("state")
    async with SOCKETS[request.param]() as host, backend_on(host, state) as opened:
        # The image takes longer than a check may.
        await opened.teardown((await opened.provision(make_order())).sandbox_id)
        yield opened


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_containers_keep_the_contract(backend: DockerBackend, check: Check) -> None:
    result = await run_check(check, Bench(backend, make_order), deviation=DEVIATIONS.get(check.name))
    assert result.is_fine, result.detail
    assert not await backend.inventory()


@pytest.mark.asyncio(loop_scope="module")
async def test_only_what_the_engine_can_do_is_offered(backend: DockerBackend) -> None:
    is_podman = "podman" in (await backend.fingerprint()).facts["engine"]
    assert (Capability.RESIZE in capabilities_of(backend)) is not is_podman
