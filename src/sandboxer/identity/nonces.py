"""A nonce works once. Bounded memory, and a restart forgets nothing that could still be replayed.

A request's timestamp must lie within the window, so a nonce has to be remembered only until its timestamp
leaves it. What a restart would forget is covered twice:

- a timestamp older than the second of the start is refused (`before_start`): the caller signs again;
- a timestamp of the running second or later (a client whose clock is ahead) could be honest after a restart
  in that very second, so the nonces of such requests are journalled, and read back at the next start.

So a request signed in the second of the start works, and one that the last process took does not work again.
"""

from __future__ import annotations

import hashlib
import heapq
from datetime import datetime
from pathlib import Path

from sandboxer.identity.nonce_journal import NonceJournal
from sandboxer.kernel.errors import Unauthenticated, Unavailable

WINDOW_S = 300
# About 200 bytes each; at 1,600 signed requests a second the book is just full.
CAPACITY = 1_000_000
_FORGET_AT_ONCE = 200


class NonceBook:
    """Lives on one thread. Without a `journal_dir` a restart within one second is not covered (tests)."""

    def __init__(
        self,
        started_at: datetime,
        *,
        journal_dir: Path | None = None,
        capacity: int = CAPACITY,
        capacity_per_key: int | None = None,
    ) -> None:
        # Timestamps up to this second are refused: their nonces are not known (any more).
        self._forgotten_up_to = int(started_at.timestamp()) - 1
        self._started_s = int(started_at.timestamp())
        self._capacity = capacity
        # One key must not be able to use up the book for all.
        self._capacity_per_key = capacity_per_key or max(1, capacity // 2)
        self._seen: dict[bytes, str] = {}
        self._by_second: dict[int, list[bytes]] = {}
        # The keys of `_by_second`, oldest first.
        self._seconds: list[int] = []
        self._count_by_key: dict[str, int] = {}
        self._journal: NonceJournal | None = None
        if journal_dir is not None:
            self._journal = NonceJournal(journal_dir)
            for second, digest in self._journal.take_over(after=self._forgotten_up_to):
                # A crash while gathering leaves some records in both files.
                if digest not in self._seen:
                    self._add(second, digest, "")

    def use(self, public_key: str, nonce: str, timestamp: int, now: datetime) -> None:
        """Take the nonce of a request whose signature holds, or refuse.

        Call it last: nothing that is refused for another reason may use up a nonce or a place in the book.
        """
        now_s = int(now.timestamp())
        # Never lowered: if the clock is set back, "too old" must not become "recent" again.
        self._forgotten_up_to = max(self._forgotten_up_to, now_s - WINDOW_S - 1)
        self._forget_some()
        self.refuse_forgotten(timestamp, now)
        digest = _digest(public_key, nonce)
        if digest in self._seen:
            raise Unauthenticated(
                why="this nonce was used before",
                reason="replayed",
                hint="Make a new X-Nonce for every request, also when repeating one.",
            )
        self._refuse_if_full(public_key)
        if self._journal is not None and timestamp >= now_s:
            self._journal.append(timestamp, digest, now_s)
        self._add(timestamp, digest, public_key)

    def refuse_forgotten(self, timestamp: int, now: datetime) -> None:
        """Cheap enough to ask before anything is computed."""
        if timestamp <= self._forgotten_up_to:
            raise Unauthenticated(
                why="the request was signed before this server started, or its clock was set back",
                reason="before_start",
                server_time=int(now.timestamp()),
                started_at=self._started_s,
                hint="Sign the request again, with the current time and a new nonce.",
            )

    def check(self) -> None:
        """From any thread. Raises Unavailable if the next nonce could not be recorded."""
        if self._journal is not None:
            self._journal.check()

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def __len__(self) -> int:
        return len(self._seen)

    def _add(self, second: int, digest: bytes, public_key: str) -> None:
        self._seen[digest] = public_key
        self._count_by_key[public_key] = self._count_by_key.get(public_key, 0) + 1
        if second not in self._by_second:
            self._by_second[second] = []
            heapq.heappush(self._seconds, second)
        self._by_second[second].append(digest)

    def _forget_some(self) -> None:
        """A bounded number at a time: after a busy hour and a pause, no single request pays for all.

        What is due but still here does no harm, since its timestamp is refused anyway.
        """
        budget = _FORGET_AT_ONCE
        while budget and self._seconds and self._seconds[0] <= self._forgotten_up_to:
            due = self._by_second[self._seconds[0]]
            while due and budget:
                self._drop(due.pop())
                budget -= 1
            if not due:
                del self._by_second[heapq.heappop(self._seconds)]

    def _drop(self, digest: bytes) -> None:
        public_key = self._seen.pop(digest)
        left = self._count_by_key[public_key] - 1
        if left:
            self._count_by_key[public_key] = left
        else:
            del self._count_by_key[public_key]

    def _refuse_if_full(self, public_key: str) -> None:
        """Forgetting a nonce to make room would allow its replay, so the honest answer is: not now."""
        if len(self._seen) >= self._capacity:
            raise Unavailable(why="too many signed requests within the last minutes", retry_after_s=WINDOW_S)
        if self._count_by_key.get(public_key, 0) >= self._capacity_per_key:
            raise Unavailable(
                why="this key sent too many signed requests within the last minutes", retry_after_s=WINDOW_S
            )


def _digest(public_key: str, nonce: str) -> bytes:
    # Neither may hold a colon. 128 bits: a collision would only refuse an honest request.
    return hashlib.blake2b(f"{public_key}:{nonce}".encode(), digest_size=16).digest()
