"""A server that is made to be killed: opens the platform, audits what it finds, then works at random.

Runs in a process of its own; tells its parent how far it got over a pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import re
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from sandboxer.artifacts.clones import Batch
from sandboxer.artifacts.snapshots.use_cases import Wanted
from sandboxer.backends.guest import Command
from sandboxer.backends.namespaces import backend as namespaces
from sandboxer.kernel.errors import SandboxerError
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, lifetime
from sandboxer.sandboxes.use_cases.access import open_line
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from tests.crash.audit import OWNER, STEADY, audit, everything
from tests.support.real_backend import GUEST_DIR, IMAGES_DIR
from tests.support.sandboxes import ACTS

WORKERS = 4
MOST = 10
SHIPPED = Path(__file__).resolve().parents[2] / "profiles" / "agent-dev.yaml"


@dataclass(frozen=True)
class Death:
    """The server kills itself before it does this for the first time: an event as Python's audit hooks hear
    it, about a path like this.
    """

    event: str
    path: str

    def strike(self, event: str, args: tuple[object, ...]) -> None:
        if event == self.event and re.search(self.path, str(args[0])):
            os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Round:
    state_dir: Path
    seed: int
    # Pretend that the host has been started anew.
    boot_id: str | None = None
    # Remove everything and end by oneself.
    is_last: bool = False
    # Nobody asks for anything: it does what a server does by itself.
    is_idle: bool = False
    death: Death | None = None


def serve(plan: Round, pipe: Connection) -> None:
    if plan.death is not None:
        sys.addaudithook(plan.death.strike)
    if plan.boot_id is not None:
        namespaces.boot_id = lambda: plan.boot_id or ""
    asyncio.run(_serve(plan, pipe))


async def _serve(plan: Round, pipe: Connection) -> None:
    settings = Settings.model_validate(
        {
            "state_dir": plan.state_dir,
            "images_dir": IMAGES_DIR,
            "guest_dir": GUEST_DIR,
            "pool_size_mb": 1400,
            "profiles_dir": _small_profiles(plan.state_dir / "profiles"),
            "warm_pool": {"profile.agent-dev": 1},
        }
    )
    async with open_platform(settings) as platform:
        states = {sandbox.id: (sandbox.state.value, sandbox.reason) for sandbox in await everything(platform)}
        pipe.send(("audited", await audit(platform), states))
        if plan.is_last:
            for sandbox in await everything(platform):
                await lifetime.destroy(platform.sandboxes, sandbox.id, OWNER)
            for snapshot in await platform.artifacts.snapshots.repository.living():
                await platform.artifacts.snapshots.drop(snapshot.id, OWNER)
            pipe.send(("cleared", await audit(platform), {}))
            return
        if plan.is_idle:
            await asyncio.Event().wait()
        async with asyncio.TaskGroup() as group:
            for number in range(WORKERS):
                group.create_task(_work(platform, random.Random(plan.seed * 100 + number)))


def _small_profiles(folder: Path) -> Path:
    """The everyday profile, made small enough for many on a small pool."""
    folder.mkdir(parents=True, exist_ok=True)
    text = SHIPPED.read_text()
    default = "default: {vcpus: 1, memory_mb: 512, disk_mb: 1024, pids: 256}"
    assert default in text
    small = text.replace(default, "default: {vcpus: 1, memory_mb: 64, disk_mb: 64, pids: 32}")
    (folder / "agent-dev.yaml").write_text(small)
    return folder


async def _work(platform: Platform, dice: random.Random) -> None:
    while True:
        living = [s for s in platform.sandboxes.repository.living() if s.state is not State.FAILED]
        steady = sum(s.labels == STEADY for s in living)
        with contextlib.suppress(SandboxerError):
            if len(living) < 3 or (len(living) < MOST and dice.random() < 0.4):
                await _create(platform, is_steady=steady < 2)
            else:
                await _change(platform, dice)
        await asyncio.sleep(dice.random() * 0.01)


async def _create(platform: Platform, *, is_steady: bool) -> None:
    if not is_steady:
        await creation.create(platform.sandboxes, CreateRequest(), OWNER)
        return
    # A sixth of the maximum, as `audit.is_steady` knows it.
    sandbox = await creation.create(platform.sandboxes, CreateRequest(labels=STEADY, ttl="4h"), OWNER)
    async with (
        open_line(platform.sandboxes, sandbox.id, OWNER, activity="processes") as guest,
        await guest.run(Command(argv=("/bin/sleep", "100000")), process_id="prc_steady"),
    ):
        pass
    await lifetime.change_ttl(platform.sandboxes, sandbox.id, "1m", OWNER)


async def _keep(platform: Platform, sandbox_id: str, dice: random.Random) -> None:
    """Take, restore, fork and drop snapshots."""
    use_cases = platform.artifacts.snapshots
    known = (await use_cases.list(OWNER)).records
    act = dice.choice(("take", "take", "restore", "clone", "drop"))
    if act == "take" or not known:
        await use_cases.take(sandbox_id, Wanted(), OWNER)
        return
    snapshot = dice.choice(known)
    if act == "restore":
        await use_cases.restore(snapshot.id, OWNER)
    elif act == "clone":
        await platform.artifacts.cloning.clone(snapshot.id, CreateRequest(), OWNER, Batch(count=2))
    else:
        await use_cases.drop(snapshot.id, OWNER)


async def _change(platform: Platform, dice: random.Random) -> None:
    others = [s for s in platform.sandboxes.repository.living() if s.labels != STEADY]
    if not others:
        return
    sandbox = dice.choice(others)
    if dice.random() < 0.4:
        await _keep(platform, sandbox.id, dice)
        return
    act = dice.choice(("destroy", "destroy", "recreate", "freeze", "thaw", "stop", "resume", "change_ttl"))
    if act == "change_ttl":
        await lifetime.change_ttl(platform.sandboxes, sandbox.id, "1m", OWNER)
    else:
        await ACTS[act](platform.sandboxes, sandbox.id, OWNER)
