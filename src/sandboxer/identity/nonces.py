"""Lets each nonce work once, in bounded memory, and across restarts.

A request's timestamp must lie within the window, so a nonce has to be remembered only until its timestamp
leaves it. What a restart would forget is covered twice:

- a timestamp older than the second of the start is refused (`before_start`): the caller signs again;
- a timestamp of the running second or later (a client whose clock is ahead) could be honest after a restart
  in that very second, so the nonces of such requests are journalled, and read back at the next start.

So a request signed in the second of the start works, and one that the last process took does not work again.
"""

from __future__ import annotations

import errno
import hashlib
import heapq
import os
import struct
from datetime import datetime
from pathlib import Path

from sandboxer.kernel.errors import Unauthenticated, Unavailable

_RECORD = struct.Struct(">q16s")
_TURN_S = 310


class NonceJournal:
    def __init__(self, folder: Path) -> None:
        self._paths = (folder / "nonces.0", folder / "nonces.1")
        self._fd: int | None = None
        self._end = 0
        self._turn = 0
        self._turn_ends_s: int | None = None

    def take_over(self, *, after: int) -> list[tuple[int, bytes]]:
        """Returns what the last process wrote with a timestamp above `after`, and copies it into the file
        now in use.
        """
        found: list[tuple[int, bytes]] = []
        for path in self._paths:
            content = path.read_bytes() if path.exists() else b""
            # A record cut short by a crash belongs to a request that was never served.
            whole = len(content) - len(content) % _RECORD.size
            found += [entry for entry in _RECORD.iter_unpack(content[:whole]) if entry[0] > after]
        draft = self._paths[0].with_name("nonces.new")
        self._open(draft)
        for timestamp, digest in found:
            self._write(timestamp, digest)
        os.replace(draft, self._paths[0])
        self._paths[1].unlink(missing_ok=True)
        return found

    def append(self, timestamp: int, digest: bytes, now_s: int) -> None:
        """Writes a nonce to the journal before it returns. Raises Unavailable if that fails: the request
        must not be served then.
        """
        try:
            if self._turn_ends_s is None:
                self._turn_ends_s = now_s + _TURN_S
            if now_s >= self._turn_ends_s:
                self._turn = 1 - self._turn
                self._open(self._paths[self._turn])
                self._turn_ends_s = now_s + _TURN_S
            self._write(timestamp, digest)
        except OSError as error:
            raise Unavailable(
                why=f"the nonce of this request cannot be recorded: {error.strerror}"
            ) from error

    def check(self) -> None:
        """Raises Unavailable unless the file is in its folder and the folder can be written to. May be called
        from any thread.

        By a file beside it: another thread must not write between the records.
        """
        beside = self._paths[0].with_name("nonces.probe")
        try:
            found, opened = (
                os.stat(self._paths[self._turn]),
                os.fstat(self._fd if self._fd is not None else -1),
            )
            if (found.st_dev, found.st_ino) != (opened.st_dev, opened.st_ino):
                raise OSError(errno.ESTALE, "the journal was taken from its folder")
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            try:
                if os.write(fd, bytes(_RECORD.size)) != _RECORD.size:
                    raise OSError(errno.ENOSPC, "short write")
            finally:
                os.close(fd)
                os.unlink(beside)
        except OSError as error:
            raise Unavailable(why=f"nonces cannot be recorded: {error.strerror}") from error

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _open(self, path: Path) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        self.close()
        self._fd, self._end = fd, 0

    def _write(self, timestamp: int, digest: bytes) -> None:
        if self._fd is None:
            raise OSError(0, "the journal is closed")
        # At a known place: what a short write leaves is overwritten by the next, so records stay in step.
        if os.pwrite(self._fd, _RECORD.pack(timestamp, digest), self._end) != _RECORD.size:
            raise OSError(0, "short write")
        self._end += _RECORD.size


WINDOW_S = 300
# About 200 bytes each; at 1,600 signed requests a second the repository is just full.
CAPACITY = 1_000_000
_FORGET_AT_ONCE = 200


class NonceRepository:
    """Remembers used nonces, on one thread. Without a `journal_dir` a restart within one second is not
    covered (tests).
    """

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
        # One key must not be able to use up the repository for all.
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
        """Uses up the nonce of a request whose signature is valid, or refuses it.

        Call it last: nothing that is refused for another reason may use up a nonce or a place in the
        repository.
        """
        now_s = int(now.timestamp())
        # Never lowered: if the clock is set back, "too old" must not become "recent" again.
        self._forgotten_up_to = max(self._forgotten_up_to, now_s - WINDOW_S - 1)
        self._forget_some()
        self.refuse_forgotten(timestamp, now)
        if (digest := _digest(public_key, nonce)) in self._seen:
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
        """Refuses a timestamp whose nonces may be forgotten. Cheap enough to ask before anything is
        computed.
        """
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
        """Forgets a bounded number of old nonces: after a busy hour and a pause, no single request pays for
        all.

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
        if left := self._count_by_key[public_key] - 1:
            self._count_by_key[public_key] = left
        else:
            del self._count_by_key[public_key]

    def _refuse_if_full(self, public_key: str) -> None:
        """Refuses a request if no more nonces can be remembered. Forgetting one to make room would allow
        its replay.
        """
        if len(self._seen) >= self._capacity:
            raise Unavailable(why="too many signed requests within the last minutes", retry_after_s=WINDOW_S)
        if self._count_by_key.get(public_key, 0) >= self._capacity_per_key:
            raise Unavailable(
                why="this key sent too many signed requests within the last minutes", retry_after_s=WINDOW_S
            )


def _digest(public_key: str, nonce: str) -> bytes:
    # Neither may hold a colon. 128 bits: a collision would only refuse an honest request.
    return hashlib.blake2b(f"{public_key}:{nonce}".encode(), digest_size=16).digest()
