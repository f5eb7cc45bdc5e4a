"""How many codes may be tried, by everybody together. One budget for the whole platform.

An attempt is taken out of the budget before the code is looked up, and given back if the code was right: so
honest redeemers cost nothing, and guesses side by side cannot pass the limit. Per address and per key the
ordinary limits of auth routes count as well.
"""

from __future__ import annotations

import math
import secrets
from collections import deque
from dataclasses import dataclass

from sandboxer.kernel.errors import TooManyRequests, WorkNeeded
from sandboxer.payments.gift_cards.codes import puzzles
from sandboxer.payments.gift_cards.records import GiftPolicy

WINDOW_S = 60.0
WORK_INFO = "gift-card-work-v1"


@dataclass(frozen=True, slots=True)
class Work:
    """What a caller brings along: a challenge of ours, solved."""

    challenge: str
    solution: str


def bits_asked(used: int, policy: GiftPolicy) -> int:
    """How hard the next attempt is. Nothing for the first half of the budget, then harder with each."""
    half = policy.attempts_per_minute // 2
    if used < half:
        return 0
    span = policy.work_bits_most - policy.work_bits
    return policy.work_bits + span * (used - half) // max(1, policy.attempts_per_minute - half)


class Attempts:
    """In memory: a restart forgives at most a minute's worth. `now` is monotonic, `wall` unix seconds."""

    def __init__(self, key: bytes, policy: GiftPolicy) -> None:
        self._key = key
        self._policy = policy
        self._failed: deque[float] = deque()
        self._solved: dict[str, int] = {}

    def bits(self, *, now: float) -> int:
        self._forget(now)
        return bits_asked(len(self._failed), self._policy)

    def challenge(self, *, now: float, wall: int) -> puzzles.Challenge | None:
        """None: none is needed now."""
        bits = self.bits(now=now)
        if not bits:
            return None
        return puzzles.make_challenge(self._key, bits=bits, nonce=secrets.token_hex(16), now=wall)

    def begin(self, work: Work | None, *, now: float, wall: int) -> float:
        """Count an attempt, or raise WorkNeeded or TooManyRequests. What is returned gives it back."""
        self._forget(now)
        limit = self._policy.attempts_per_minute
        if len(self._failed) >= limit:
            raise TooManyRequests(
                limit=limit,
                retry_after_s=max(1, math.ceil(self._failed[0] + WINDOW_S - now)),
                per="platform",
                hint="Too many wrong codes are being tried here; no card is lost, wait and try again.",
            )
        bits = bits_asked(len(self._failed), self._policy)
        if bits and not self._is_enough(work, bits, wall):
            asked = puzzles.make_challenge(self._key, bits=bits, nonce=secrets.token_hex(16), now=wall)
            raise WorkNeeded(
                why="many wrong codes are being tried here",
                challenge=asked.text,
                bits=asked.bits,
                expires=asked.expires,
            )
        self._failed.append(now)
        return now

    def forgive(self, begun: float) -> None:
        """The code was right."""
        try:
            self._failed.remove(begun)
        except ValueError:
            return

    def _is_enough(self, work: Work | None, bits: int, wall: int) -> bool:
        if work is None or work.challenge in self._solved:
            return False
        asked = puzzles.read_challenge(self._key, work.challenge, now=wall)
        # A challenge of a moment ago may be a little easier than the next; an old easy one does not do.
        if asked is None or asked.bits < bits - 1:
            return False
        if not puzzles.is_solved(work.challenge, work.solution, asked.bits):
            return False
        for text in [text for text, expires in self._solved.items() if expires <= wall]:
            del self._solved[text]
        self._solved[work.challenge] = asked.expires
        return True

    def _forget(self, now: float) -> None:
        while self._failed and self._failed[0] <= now - WINDOW_S:
            self._failed.popleft()
