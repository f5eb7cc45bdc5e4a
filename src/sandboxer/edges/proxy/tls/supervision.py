"""Caddy beside us: started with our configuration, started again if it ends, gone when we go."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from sandboxer.edges.proxy.tls.caddy import EdgePlan, render
from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.kernel.tasks import own_tasks

log = logging.getLogger(__name__)
# A Caddy that dies at once is not started a thousand times a second.
PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
STOP_S = 10.0


def find_caddy() -> str:
    found = shutil.which("caddy")
    if found is None:
        raise NotAvailable(
            what="HTTPS",
            why="Caddy is not installed",
            hint="apt-get install caddy, or serve without --https.",
        )
    return found


async def write_plan(plan: EdgePlan, file: Path) -> None:
    """Write the configuration and have Caddy check it. Raises InvalidRequest with what it says."""
    caddy = find_caddy()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(render(plan))
    words = ("validate", "--adapter", "caddyfile", "--config", str(file))
    checking = await asyncio.create_subprocess_exec(
        caddy,
        *words,
        env=_environment(file),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await checking.communicate()
    if checking.returncode:
        raise InvalidRequest(field="edge", why=f"Caddy refuses it: {said.decode(errors='replace')[-500:]}")


@asynccontextmanager
async def running_edge(plan: EdgePlan, folder: Path) -> AsyncIterator[None]:
    """Caddy runs while this is open."""
    file = folder / "Caddyfile"
    await write_plan(plan, file)
    async with own_tasks() as tasks:
        tasks.start(_keep_running(file), name="caddy")
        yield


async def _keep_running(file: Path) -> None:
    pause = PAUSE_S
    loop = asyncio.get_running_loop()
    while True:
        began = loop.time()
        await _run(file)
        if loop.time() - began > LONGEST_PAUSE_S:
            pause = PAUSE_S
        log.warning("Caddy ended; it is started again in %g s", pause)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE_S)


async def _run(file: Path) -> None:
    words = ("run", "--adapter", "caddyfile", "--config", str(file))
    with (file.parent / "caddy.log").open("ab") as kept:
        process = await asyncio.create_subprocess_exec(
            find_caddy(), *words, env=_environment(file), stdout=kept, stderr=kept, start_new_session=True
        )
    try:
        await process.wait()
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()


def _environment(file: Path) -> dict[str, str]:
    """Nothing of ours: keys may be in our environment."""
    return {"HOME": str(file.parent), "PATH": os.defpath}
