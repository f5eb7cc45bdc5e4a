"""Engines that tests start and end: Docker's and Podman's, each with all its state in a folder."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sandboxer.backends.docker.backend import DockerBackend
from sandboxer.wiring.docker import DockerSettings, open_docker
from tests.artifacts.engines import docker_daemon, remove_cgroups, why_no_docker
from tests.support.real_backend import GUEST_DIR, IMAGES_DIR, require_walls

# What some hosts force on Podman: no limits above their own.
_LIMITS = '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n'
# crun refuses cgroups of both versions at once.
_SERVE = 'umount -l /sys/fs/cgroup/unified 2>/dev/null; exec podman "$@"'


def require_engine(kind: str) -> None:
    require_walls()
    found = why_no_docker() if kind == "docker" else None
    if kind == "podman" and (shutil.which("podman") is None or shutil.which("runc") is None):
        found = "podman or runc is not installed: scripts/system-packages ci"
    if found is not None:
        pytest.skip(found)


@asynccontextmanager
async def docker_socket(*options: str) -> AsyncIterator[str]:
    async with docker_daemon(*options, storage="overlay2") as docker:
        yield f"unix://{docker.socket}"


@asynccontextmanager
async def podman_socket() -> AsyncIterator[str]:
    with tempfile.TemporaryDirectory(prefix="pm-", dir="/var/tmp", ignore_cleanup_errors=True) as made:
        home, parent = Path(made), f"sandboxer-tests-{os.getpid()}"
        (home / "containers.conf").write_text(f'{_LIMITS}cgroup_parent = "/{parent}"\n')
        words = [f"--{name}={home / name}" for name in ("root", "runroot", "tmpdir")]
        words += [f"--runtime={shutil.which('runc')}", "--cgroup-manager=cgroupfs", "--events-backend=file"]
        socket = home / "sock"
        with (home / "log").open("wb") as log:
            service = await asyncio.create_subprocess_exec(
                *("unshare", "--mount", "sh", "-c", _SERVE, "podman", *words),
                *("system", "service", "--time=0", f"unix://{socket}"),
                stdout=log,
                stderr=log,
                env={**os.environ, "CONTAINERS_CONF": str(home / "containers.conf")},
            )
        try:
            await listening(socket, service, home / "log")
            yield f"unix://{socket}"
        finally:
            if service.returncode is None:
                service.terminate()
            await asyncio.wait_for(service.wait(), 60)
            remove_cgroups(parent)


async def listening(socket: Path, service: asyncio.subprocess.Process, log: Path) -> None:
    deadline = time.monotonic() + 60
    while True:
        try:
            _, writer = await asyncio.open_unix_connection(str(socket))
        except OSError:
            assert service.returncode is None, f"it ended: {log.read_text()[-2000:]}"
            assert time.monotonic() < deadline, f"it never listened: {log.read_text()[-2000:]}"
            await asyncio.sleep(0.1)
        else:
            writer.close()
            return


def docker_settings(host: str, state: Path, keys: Path | None = None) -> DockerSettings:
    return DockerSettings(host=host, keys=keys, images_dir=IMAGES_DIR, guest_dir=GUEST_DIR, state_dir=state)


@asynccontextmanager
async def backend_on(host: str, state: Path, keys: Path | None = None) -> AsyncIterator[DockerBackend]:
    """Opens the backend on an engine, and removes what it made."""
    async with open_docker(docker_settings(host, state, keys)) as backend:
        yield backend
        for sandbox_id in await backend.inventory():
            await backend.teardown(sandbox_id)
