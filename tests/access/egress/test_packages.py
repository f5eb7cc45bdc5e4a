"""Packages as people install them, in a sandbox with network `packages`: by whatever way this machine has to
the registries, a mirror or the world.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.support.access import real  # noqa: F401
from tests.support.egress_inside import run
from tests.support.http.served import Served

NPM = Path(__file__).parents[3] / "images" / "base.d" / "usr" / "local" / "bin" / "npm"


def _reached(host: str) -> bool:
    try:
        with socket.create_connection((host, 443), 5) as wire:
            ssl.create_default_context().wrap_socket(wire, server_hostname=host).close()
    except OSError:
        return False
    return True


@pytest.fixture
async def packages(real: Served) -> AsyncIterator[str]:
    for host in ("pypi.org", "registry.npmjs.org"):
        if not await asyncio.to_thread(_reached, host):
            pytest.skip("this machine reaches no registry of packages")
    return await real.sandbox(network="packages", resources={"disk_mb": 512, "memory_mb": 1024})


async def test_pip_installs_and_nothing_else_is_reached(real: Served, packages: str) -> None:
    said = await run(real, packages, "pip", "install", "--no-cache-dir", "six")
    assert "Successfully installed six" in said
    assert "WARNING" not in said
    assert "1." in await run(real, packages, "python3", "-c", "import six; print(six.__version__)")
    refused = await run(real, packages, "curl", "-sS", "-o", "/dev/null", "https://example.com/")
    assert "403" in refused


async def test_npm_comes_when_it_is_first_called_and_installs(real: Served, packages: str) -> None:
    path = f"{packages}/files/content?path=%2Fusr%2Flocal%2Fbin%2Fnpm&mode=0755"
    assert (await real.client.send("PUT", path, content=NPM.read_bytes())).status_code == 200
    said = await run(real, packages, "sh", "-c", "cd /workspace && npm install --no-fund left-pad@1.3.0")
    assert "added 1 package" in said, said
    assert "  a" in await run(
        real, packages, "sh", "-c", "cd /workspace && node -p \"require('left-pad')('a', 3)\""
    )


async def test_a_sandbox_without_a_network_installs_nothing(real: Served) -> None:
    path = await real.sandbox(network="none")
    assert "Successfully" not in await run(real, path, "pip", "install", "--retries", "0", "six")
