"""Tries whether sandboxes can be made here at this moment: the pool is mounted and can be written to, the
launcher answers. What was opened once may have failed since.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

from sandboxer.backends.disk_probe import write_there
from sandboxer.backends.namespaces.dependencies import BackendDependencies
from sandboxer.backends.namespaces.launcher import Launcher
from sandboxer.backends.namespaces.pool import Pool
from sandboxer.kernel.errors import Unavailable
from sandboxer.kernel.tasks import beside

log = logging.getLogger(__name__)
# How long a launcher may be silent for a probe, and before it is replaced: a hundred launches at once on two
# cores keep an honest one from answering for seconds.
LAUNCHER_ANSWERS_WITHIN_S = 2.0
LAUNCHER_HANGS_AFTER_S = 10.0
LAUNCHER_WATCH_EVERY_S = 5.0


def parts_of(dependencies: BackendDependencies) -> Mapping[str, Callable[[], Awaitable[None]]]:
    return {
        "pool": lambda: beside(lambda: try_pool(dependencies.pool)),
        "launcher": lambda: dependencies.launcher.ping(within_s=LAUNCHER_ANSWERS_WITHIN_S),
    }


def try_pool(pool: Pool) -> None:
    """Writes to the pool. Raises Unavailable saying what is wrong with it. Blocks."""
    try:
        is_ours = pool.is_in_place()
    except OSError as error:
        raise Unavailable(why=f"the storage pool does not answer: {error.strerror}") from error
    if not is_ours:
        raise Unavailable(why=f"the storage pool is not mounted at {pool.path}")
    write_there(pool.path)


async def watch_launcher(launcher: Launcher) -> None:
    """Replaces a launcher that hangs, for ever. Sandboxes do not depend on it once they run."""
    while True:
        await asyncio.sleep(LAUNCHER_WATCH_EVERY_S)
        try:
            await launcher.ping(within_s=LAUNCHER_HANGS_AFTER_S)
        except Unavailable as error:
            log.error("the launcher hangs (%s): it is replaced", error)
            await launcher.replace()
        except Exception:
            # An outermost loop: what could not be started now is started with the next order.
            log.exception("the launcher could not be looked at")
