"""Each payment rail is checked against the settings: at start, every hour, and more often while it is off.

A node of another chain, a token other than configured, or a server that lacks the newest blocks would accept
money that nobody can count. Such a rail is off, with a reason: it is not offered, no payment is accepted on
it, and nothing is concluded from its answers. It is turned on again without a restart once all is well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError

log = logging.getLogger(__name__)
DEADLINE = timedelta(seconds=8)
# A node that is only starting is tried again soon; one that stays off, seldom.
SOONEST = timedelta(seconds=1)
AGAIN_WHEN_OFF = timedelta(seconds=30)
AGAIN_WHEN_ON = timedelta(hours=1)

# None: all is as configured; else why not. May raise any SandboxerError instead.
Check = Callable[[], Awaitable[str | None]]


class Standings:
    """Knows which rails are off now, and why."""

    def __init__(self) -> None:
        self._off: dict[str, str] = {}

    def turn(self, rail: str, why_off: str | None) -> None:
        """Turn a rail off for this reason, or on with None."""
        self._off.pop(rail, None)
        if why_off is not None:
            self._off[rail] = why_off

    def why_off(self, rail: str) -> str | None:
        return self._off.get(rail)


class Rails:
    def __init__(self, standings: Standings, checks: Mapping[str, Check], clock: Clock) -> None:
        self._standings = standings
        self._checks = checks
        self._clock = clock

    async def check_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for rail, check in self._checks.items():
                group.create_task(self._check(rail, check))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for rail, check in self._checks.items():
                group.create_task(self._watch(rail, check))

    async def _watch(self, rail: str, check: Check) -> None:
        failures = 0
        while True:
            failures = 0 if self._standings.why_off(rail) is None else failures + 1
            await self._clock.sleep(pause_after(failures))
            await self._check(rail, check)

    async def _check(self, rail: str, check: Check) -> None:
        before = self._standings.why_off(rail)
        try:
            async with asyncio.timeout(DEADLINE.total_seconds()):
                why = await check()
        except TimeoutError:
            why = f"its node took longer than {DEADLINE.total_seconds():.0f} s to answer"
        except SandboxerError as error:
            why = str(error)
        except Exception as error:
            # Whatever a stranger's node answered: it is off, and the others are not.
            log.exception("%s could not be checked", rail)
            why = f"its node answered nonsense ({type(error).__name__})"
        self._standings.turn(rail, why)
        if why is not None and why != before:
            log.warning("payments on %s are off: %s", rail, why)
        elif why is None and before is not None:
            log.warning("payments on %s are on again", rail)


def pause_after(failures: int) -> timedelta:
    """How long until the next check, after so many in a row that found the rail off."""
    if not failures:
        return AGAIN_WHEN_ON
    return min(AGAIN_WHEN_OFF, SOONEST * (1 << min(failures - 1, 10)))
