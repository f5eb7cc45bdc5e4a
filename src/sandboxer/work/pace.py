"""How fast the server reads what one program says: a burst, then so much a second.

Reading costs the one loop that serves everybody; who is read more slowly waits at its own full pipe.
"""

from __future__ import annotations

import asyncio


class Pace:
    """`spend` returns at once while there is something left, and else when the debt is paid off."""

    def __init__(self, rate: int) -> None:
        self._rate = rate
        self._left = float(rate)
        self._at = asyncio.get_running_loop().time()

    async def spend(self, amount: int) -> None:
        now = asyncio.get_running_loop().time()
        self._left = min(float(self._rate), self._left + (now - self._at) * self._rate) - amount
        self._at = now
        if self._left < 0:
            await asyncio.sleep(-self._left / self._rate)
