"""Is each network what the settings say it is? Asked at the start, and again while it is not, or each hour.

A network whose node is of another chain, or whose token is another than configured, would take money that
nobody can count. It is off then, with a reason: not offered, not taken, and nothing is concluded from it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import SandboxerError
from sandboxer.payments.x402.ways import Check, Ways

log = logging.getLogger(__name__)
DEADLINE = timedelta(seconds=8)
AGAIN_WHEN_OFF = timedelta(seconds=30)
AGAIN_WHEN_ON = timedelta(hours=1)


class Rails:
    def __init__(self, ways: Ways, clock: Clock) -> None:
        self._ways = ways
        self._clock = clock
        self._checks: Mapping[str, Check] = {way.network: way.check for way in ways if way.check is not None}

    async def check_all(self) -> None:
        async with asyncio.TaskGroup() as group:
            for network, check in self._checks.items():
                group.create_task(self._check(network, check))

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            for network, check in self._checks.items():
                group.create_task(self._watch(network, check))

    async def _watch(self, network: str, check: Check) -> None:
        while True:
            is_off = self._ways.why_off(network) is not None
            await self._clock.sleep(AGAIN_WHEN_OFF if is_off else AGAIN_WHEN_ON)
            await self._check(network, check)

    async def _check(self, network: str, check: Check) -> None:
        before = self._ways.why_off(network)
        try:
            async with asyncio.timeout(DEADLINE.total_seconds()):
                why = await check()
        except TimeoutError:
            why = f"its node took longer than {DEADLINE.total_seconds():.0f} s to answer"
        except SandboxerError as error:
            why = str(error)
        except Exception as error:
            # Whatever a stranger's node answered: it is off, and the others are not.
            log.exception("%s could not be checked", network)
            why = f"its node answered nonsense ({type(error).__name__})"
        self._ways.turn(network, why)
        if why is not None and why != before:
            log.warning("payments on %s are off: %s", network, why)
        elif why is None and before is not None:
            log.warning("payments on %s are on again", network)
