"""The loops that run without a caller: timer, watch for deaths, activity recorder, filler of the warm
pool, stops of suspended accounts.

Each sleeps until something is due or happens. One alone polls: `precedence.py` reads a sum of the kernel's
twice a second.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from sandboxer.kernel.tasks import TaskOwner
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.loops.suspension import SuspensionLoop
from sandboxer.sandboxes.loops.timer import Timer, record_activity
from sandboxer.sandboxes.operations import LONG
from sandboxer.sandboxes.reconciler import watch_deaths

log = logging.getLogger(__name__)
# After a failure (a full host, say), how long to leave it.
PAUSE = timedelta(seconds=10)
# How long another is not made after one was taken, if there are more: whoever has it is using it now.
LULL_S = 0.25


def start_loops(dependencies: SandboxDependencies, tasks: TaskOwner) -> None:
    tasks.start(Timer(dependencies).run(), name="timer")
    tasks.start(record_activity(dependencies), name="activity recorder")
    tasks.start(keep_filled(dependencies), name="warm pool")
    tasks.start(SuspensionLoop(dependencies).run(), name="suspensions")
    for name, backend in dependencies.backends.items():
        tasks.start(watch_deaths(dependencies, backend), name=f"deaths of {name}")


async def keep_filled(dependencies: SandboxDependencies) -> None:
    """Keep the warm pool filled, one sandbox at a time, and only while nobody waits for a create."""
    while True:
        await dependencies.warm.call()
        if dependencies.warm.count():
            await asyncio.sleep(LULL_S)
        while (kind := dependencies.warm.missing()) is not None:
            await dependencies.operations.quiet(LONG)
            try:
                await dependencies.warm.make(kind, dependencies.prepare, dependencies.bring)
            except Exception as error:
                # An outermost loop: without warm sandboxes the platform is slower, not broken.
                log.warning("could not make a warm sandbox: %r", error)
                await dependencies.clock.sleep(PAUSE)
