"""A platform in a process of its own, made to be killed. Its sandboxes outlive it, as real ones do."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from sandboxer.backends.contract import Handle, Observation, Presence
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.settings import Settings
from tests.support.http.served import serving

# Forked from a process that has imported everything once; none of our threads and loops are in it.
_SPAWN = multiprocessing.get_context("forkserver")
_SPAWN.set_forkserver_preload([__name__])


class Lasting(Scripted):
    """What a process before this one made is still there."""

    async def mark(self) -> str | None:
        return '{"installation": "the one before", "beat": 0}'

    async def recover(self, handle: Handle) -> Observation:
        return Observation(presence=Presence.RUNNING, reason="")

    async def teardown(self, sandbox_id: str) -> None:
        if sandbox_id in self.boxes:
            await super().teardown(sandbox_id)


@dataclass(frozen=True)
class Plan:
    settings: dict[str, Any]
    boot_s: float = 0.0


def serve(plan: Plan, pipe: Connection) -> None:
    asyncio.run(_serve(plan, pipe))


async def _serve(plan: Plan, pipe: Connection) -> None:
    backend = Lasting(name="ext.namespaces", boot_takes=timedelta(seconds=plan.boot_s))
    settings = Settings.model_validate(plan.settings)
    async with serving(settings, {"ext.namespaces": backend}) as served:
        pipe.send(served.url)
        await asyncio.Event().wait()


class ShopProcess:
    def __init__(self, plan: Plan) -> None:
        ours, theirs = _SPAWN.Pipe()
        self._process: BaseProcess = _SPAWN.Process(target=serve, args=(plan, theirs), daemon=True)
        self._process.start()
        theirs.close()
        assert ours.poll(60), "the platform did not start"
        self.url: str = ours.recv()

    def kill(self) -> None:
        """SIGKILL, and waited for."""
        self._process.kill()
        self._process.join(30)
        assert self._process.exitcode == -signal.SIGKILL


def state_of(folder: Path) -> str:
    return f"sqlite:///{folder / 'state' / 'sandboxer.db'}"
