"""Names looked up in threads of their own: a name server that does not answer must not hold up other work.

A look-up cannot be taken back. It counts against whoever asked until its thread is free again, however long
ago the asker gave up: so nobody has more than a few threads, and the queue before them stays short.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

THREADS = 64
EACH = 4
WAIT_S = 2.0

_Found = Sequence[str] | OSError | UnicodeError


class TooManyLookups(Exception):
    """Whoever asks has as many under way as anybody may."""


@dataclass(slots=True)
class _Turns:
    free: asyncio.Semaphore
    # Under way and waiting.
    asked: int = 0


@dataclass(slots=True)
class Lookups:
    name: str
    threads: int = THREADS
    each: int = EACH
    wait_s: float = WAIT_S
    _pool: ThreadPoolExecutor = field(init=False)
    _turns: dict[str, _Turns] = field(default_factory=dict, init=False)
    _under_way: dict[str, asyncio.Future[_Found]] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix=f"names of {self.name}")

    async def addresses(self, host: str, *, owner: str) -> Sequence[str]:
        """Raises OSError (gaierror) or UnicodeError if it has none, TooManyLookups."""
        under_way = self._under_way.get(host)
        if under_way is None:
            await self._take_turn(owner)
            under_way = self._under_way.get(host)
            if under_way is None:
                under_way = self._begin(host, owner)
            else:
                self._end_turn(owner)
        found = await asyncio.shield(under_way)
        if isinstance(found, Exception):
            raise found
        return found

    def _begin(self, host: str, owner: str) -> asyncio.Future[_Found]:
        def done(_: asyncio.Future[_Found]) -> None:
            self._under_way.pop(host, None)
            self._end_turn(owner)

        begun = asyncio.get_running_loop().run_in_executor(self._pool, _look_up, host)
        self._under_way[host] = begun
        begun.add_done_callback(done)
        return begun

    async def _take_turn(self, owner: str) -> None:
        turns = self._turns.setdefault(owner, _Turns(asyncio.Semaphore(self.each)))
        turns.asked += 1
        try:
            async with asyncio.timeout(self.wait_s):
                await turns.free.acquire()
        except BaseException as error:
            self._forget(owner, turns)
            if isinstance(error, TimeoutError):
                raise TooManyLookups(f"{self.each} names are being looked up already") from None
            raise

    def _end_turn(self, owner: str) -> None:
        turns = self._turns[owner]
        turns.free.release()
        self._forget(owner, turns)

    def _forget(self, owner: str, turns: _Turns) -> None:
        turns.asked -= 1
        if not turns.asked:
            self._turns.pop(owner, None)


def _look_up(host: str) -> _Found:
    """What went wrong is given back, not raised: perhaps nobody waits for it any more."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
