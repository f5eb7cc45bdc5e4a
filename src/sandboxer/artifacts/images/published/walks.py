"""How many images are gone through at once, file by file: of one account, and of all.

Each takes a thread for up to half an hour, and who makes its files decides for how long. Threads are few, and
everybody's: sandboxes are made by them, and names looked up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from weakref import WeakValueDictionary

AT_ONCE = 3
OF_ONE = 2


class Walks:
    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._of_one: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, account: str) -> AsyncIterator[None]:
        """Who is too many waits. An account's own first: its queue takes nobody else's place."""
        mine = self._of_one.get(account)
        if mine is None:
            mine = self._of_one[account] = asyncio.Semaphore(OF_ONE)
        async with mine, self._all:
            yield
