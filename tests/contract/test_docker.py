"""Containers of Docker and of Podman pass the contract suite, save what the backend says they cannot; those
of Docker also on a host that is reached by TLS, or by SSH.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.contract import Capability, Wall, capabilities_of
from sandboxer.backends.docker.backend import DockerBackend
from sandboxer.wiring.docker import DEVIATIONS
from tests.support.engines import backend_on, docker_socket, podman_socket, require_engine
from tests.support.real_backend import make_order
from tests.support.remote_host import remote_machine
from tests.support.reported import demand_a_true_meter, demand_a_true_report, demand_an_honest_estimate

# The engines are large: the gate does not install them.
pytestmark = pytest.mark.slow
# Where an engine is, and the keys to it.
Place = tuple[str, Path | None]


@asynccontextmanager
async def local_docker() -> AsyncIterator[Place]:
    require_engine("docker")
    async with docker_socket() as host:
        yield host, None


@asynccontextmanager
async def local_podman() -> AsyncIterator[Place]:
    require_engine("podman")
    async with podman_socket() as host:
        yield host, None


@asynccontextmanager
async def docker_by_tls() -> AsyncIterator[Place]:
    async with remote_machine() as machine:
        yield machine.by_tls


@asynccontextmanager
async def docker_by_ssh() -> AsyncIterator[Place]:
    async with remote_machine() as machine:
        yield machine.by_ssh


WAYS: dict[str, Callable[[], AbstractAsyncContextManager[Place]]] = {
    "docker": local_docker,
    "podman": local_podman,
    "docker-by-tls": docker_by_tls,
    "docker-by-ssh": docker_by_ssh,
}


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=WAYS)
async def backend(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[DockerBackend]:
    state: Path = tmp_path_factory.mktemp("state")
    async with WAYS[request.param]() as (host, keys), backend_on(host, state, keys) as opened:
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
async def test_the_fingerprint_says_what_the_engine_is(
    backend: DockerBackend, request: pytest.FixtureRequest
) -> None:
    seen = await backend.fingerprint()
    way = request.node.callspec.params["backend"]
    assert seen.facts["engine"].startswith("podman " if way == "podman" else "docker ")
    assert seen.facts["address"].startswith(
        {"docker-by-tls": "tcp://", "docker-by-ssh": "ssh://"}.get(way, "unix:///")
    )
    assert {Wall.FILES, Wall.PROCESSES, Wall.NETWORK, Wall.MEMORY, Wall.CPU, Wall.PIDS} <= seen.walls
    # Overlay over ext4 limits no container, and says so.
    assert Wall.DISK not in seen.walls
    assert {"uid ranges", "disk limits"} <= {lack.what for lack in seen.lacks}


@pytest.mark.asyncio(loop_scope="module")
async def test_what_it_says_of_money_of_use_and_of_removal_is_so(backend: DockerBackend) -> None:
    await demand_an_honest_estimate(backend)
    await demand_a_true_meter(backend)
    await demand_a_true_report(backend, {"container", "disk"})


@pytest.mark.asyncio(loop_scope="module")
async def test_only_what_the_engine_can_do_is_offered(backend: DockerBackend) -> None:
    is_podman = "podman" in (await backend.fingerprint()).facts["engine"]
    assert (Capability.RESIZE in capabilities_of(backend)) is not is_podman
