"""What `sandboxer backend new` begins with keeps the contract, save what it says it cannot."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from sandboxer.backends.checks import CHECKS, Bench, Check, run_check
from sandboxer.backends.checks.suite import until
from sandboxer.backends.contract import Presence
from sandboxer.backends.template import DEVIATIONS, TemplateBackend, open_backend
from sandboxer.kernel.errors import ProvisionFailed
from sandboxer.settings import Settings
from tests.support.real_backend import IMAGES_DIR, make_order, require_walls, state_folder

# A server that makes one sandbox after the other until it is killed.
MAKE_MANY = """
import asyncio, sys
from pathlib import Path
from sandboxer.backends.contract import Order, Resources, Trust
from sandboxer.backends.template import open_backend
from sandboxer.kernel.values import new_id
from sandboxer.settings import Settings

async def main():
    resources = Resources(vcpus=1, memory_mb=64, disk_mb=64, pids=16)
    async with open_backend(Settings(state_dir=Path(sys.argv[1]), images_dir=Path(sys.argv[2]))) as backend:
        print("begins", flush=True)
        while True:
            sandbox_id = new_id("sbx")
            order = Order(sandbox_id=sandbox_id, image="base", resources=resources, trust=Trust.ZERO)
            await backend.provision(order)

asyncio.run(main())
"""


@pytest.fixture
def own() -> Iterator[Settings]:
    require_walls()
    with state_folder() as state:
        yield Settings(state_dir=state, images_dir=IMAGES_DIR)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
async def test_it_keeps_the_contract(check: Check, own: Settings) -> None:
    @asynccontextmanager
    async def reopen() -> AsyncIterator[TemplateBackend]:
        async with open_backend(own) as again:
            yield again

    async with open_backend(own) as backend:
        bench = Bench(backend, make_order, reopen)  # type: ignore[arg-type]
        result = await run_check(check, bench, deviation=DEVIATIONS.get(check.name))
        assert result.is_fine, result.detail
        assert not await backend.inventory()


async def test_one_that_ends_by_itself_is_told_of(own: Settings) -> None:
    async with open_backend(own) as backend:
        handle = await backend.provision(make_order())
        box = own.state_dir / backend.name / handle.sandbox_id / "box.json"
        os.kill(json.loads(box.read_text())["pid"], signal.SIGKILL)
        assert await anext(backend.deaths()) == handle.sandbox_id
        assert (await backend.recover(handle)).presence is Presence.GONE
        await backend.teardown(handle.sandbox_id)
        assert not await backend.inventory()


async def test_whenever_its_server_is_killed_nothing_is_left_that_cannot_be_removed(own: Settings) -> None:
    def living() -> list[str]:
        mark, found = os.fsencode(own.state_dir), []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                if mark in Path(f"/proc/{pid}/environ").read_bytes():
                    found.append(pid)
        return found

    async def none_lives() -> bool:
        return not living()

    for delay_s in (0.0, 0.005, 0.02, 0.05):
        words = (sys.executable, "-c", MAKE_MANY, str(own.state_dir), str(IMAGES_DIR))
        server = await asyncio.create_subprocess_exec(*words, stdout=subprocess.PIPE)
        assert server.stdout is not None
        assert await server.stdout.readline() == b"begins\n"
        await asyncio.sleep(delay_s)
        server.kill()
        await server.wait()
        async with open_backend(own) as backend:
            for sandbox_id in await backend.inventory():
                await backend.teardown(sandbox_id)
            assert not await backend.inventory()
        await until(none_lives, "a process is left", within_s=10)


async def test_one_that_cannot_begin_fails_with_the_words_of_the_program_that_failed(own: Settings) -> None:
    # A colon ends the name of a layer.
    odd = own.model_copy(update={"state_dir": own.state_dir / "a,b"})
    async with open_backend(odd) as backend:
        with pytest.raises(ProvisionFailed, match="mount"):
            await backend.provision(make_order())
        assert not await backend.inventory()
