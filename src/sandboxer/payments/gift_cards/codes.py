"""The code of a card is four words of 7,776, made at random; the platform keeps only a keyed hash of it.

7776⁴ ≈ 3.66·10¹⁵ codes, 51.7 bits. That is too little to be kept as a plain hash (a copy of the database
would be searched in hours), so the hash is keyed with a pepper that only `master.key` gives; and enough
against guessing over the network, where the whole platform answers so many attempts a minute (`Attempts`).

`Attempts` bounds how many wrong codes may be tried: by everybody together, and by each address and the
network around it. An attempt is counted before the code is looked up and given back if the code was right: so
honest redeemers cost nothing, and concurrent guesses cannot pass the limit. The ordinary limits of auth
routes count as well.

Whoever uses the budget up does not lock others out. From then on those who guessed wrong are refused, and
those who did not, nor many around them, may still try, for the hardest work. So beyond the budget a guesser
gets three wrong codes an hour out of each network it has.
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sandboxer.kernel.errors import InvalidRequest, TooManyRequests, WorkNeeded
from sandboxer.kernel.values import brief_value_class
from sandboxer.payments.gift_cards.records import GiftPolicy

WORDS = 4
LIST = Path(__file__).with_name("words.txt")
LOOKUP_INFO = "gift-card-lookup-v1"
# What people put between words, and what copying adds around them.
_BETWEEN = re.compile(r"[\s\-_.,+/]+")
_LONGEST = 200
LIVES_S = 300
_FORM_VERSION = "w1"
WINDOW_S = 60.0
# How long a wrong code is held against where it came from.
REMEMBERED_S = 3600.0
# No network may use up more than this part of the budget, or two addresses' worth, if that is more.
NETWORK_PART = 6
NETWORK_LEAST = 20
# Beyond the budget: wrong codes in the last hour at which a network is no longer believed to be honest.
NETWORK_WRONG = 3
WORK_INFO = "gift-card-work-v1"


@brief_value_class
class Challenge:
    text: str
    bits: int
    expires: int


@brief_value_class
class Work:
    """A challenge of ours that the caller has solved."""

    challenge: str
    solution: str


@brief_value_class
class Origin:
    """Where an attempt comes from, as the limits count it."""

    address: str
    network: str
    # Who asks, if he said so.
    account: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        own = (f"address:{self.address}", f"network:{self.network}")
        return own if self.account is None else (*own, f"account:{self.account}")


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    at: float
    names: Sequence[str]


@cache
def word_list() -> tuple[str, ...]:
    lines = LIST.read_text("ascii").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def new_code() -> str:
    """Make a new code. It is shown to the buyer once and stored nowhere."""
    words = word_list()
    return "-".join(secrets.choice(words) for _ in range(WORDS))


def normalised(code: str) -> str:
    """Normalise a code: case, spaces and hyphens do not matter. Raises InvalidRequest for anything else.

    Refusing words that are not in the list gives nothing away: the list is public.
    """
    parts = [part for part in _BETWEEN.split(code[: _LONGEST + 1].casefold()) if part]
    if len(code) > _LONGEST or len(parts) != WORDS or not all(part in _known() for part in parts):
        raise InvalidRequest(
            field="code",
            why=f"it must be {WORDS} words of the list",
            hint="Check the spelling; case, spaces and hyphens do not matter.",
        )
    return "-".join(parts)


def lookup_of(code: str, pepper: bytes) -> str:
    """Return the keyed hash by which a card is found. A copy of the database alone cannot test guesses."""
    return hmac.new(pepper, normalised(code).encode(), hashlib.sha256).hexdigest()


@cache
def _known() -> frozenset[str]:
    return frozenset(word_list())


def make_challenge(key: bytes, *, bits: int, nonce: str, now: int) -> Challenge:
    head = f"{_FORM_VERSION}.{bits}.{now + LIVES_S}.{nonce}"
    return Challenge(f"{head}.{_mac(key, head)}", bits, now + LIVES_S)


def read_challenge(key: bytes, text: str, *, now: int) -> Challenge | None:
    """Read a challenge; None if it is not ours or too old."""
    head, _, mac = text.rpartition(".")
    if not hmac.compare_digest(_mac(key, head), mac):
        return None
    _, bits, expires, _ = head.split(".")
    return None if int(expires) <= now else Challenge(text, int(bits), int(expires))


def is_solved(challenge: str, solution: str, bits: int) -> bool:
    digest = hashlib.sha256(f"{challenge}:{solution}".encode()).digest()
    return int.from_bytes(digest) >> (256 - bits) == 0


def _mac(key: bytes, head: str) -> str:
    return hmac.new(key, head.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]


def bits_asked(used: int, policy: GiftPolicy) -> int:
    """Return how many bits of work the next attempt needs: none for the first half of the budget, then more
    with each attempt, and beyond the budget one bit more each time it was used up again.
    """
    half = policy.attempts_per_minute // 2
    if used < half:
        return 0
    if used >= policy.attempts_per_minute:
        return policy.work_bits_most + (used // policy.attempts_per_minute).bit_length() - 1
    span = policy.work_bits_most - policy.work_bits
    return policy.work_bits + span * (used - half) // max(1, policy.attempts_per_minute - half)


class Attempts:
    """Counts attempts in memory; a restart forgives a minute's worth.

    `now` is monotonic, `wall` unix seconds.
    """

    def __init__(self, key: bytes, policy: GiftPolicy) -> None:
        self._key = key
        self._policy = policy
        # Wrong, or not known to be right yet: of the last minute, and of the last hour.
        self._failed: deque[Attempt] = deque()
        self._remembered: deque[Attempt] = deque()
        self._recent: Counter[str] = Counter()
        self._wrong: Counter[str] = Counter()
        self._solved: dict[str, int] = {}

    def bits(self, *, now: float) -> int:
        self._forget(now)
        return bits_asked(len(self._failed), self._policy)

    def challenge(self, *, now: float, wall: int) -> Challenge | None:
        """Return a challenge, or None if no work is needed now."""
        if not (bits := self.bits(now=now)):
            return None
        return make_challenge(self._key, bits=bits, nonce=secrets.token_hex(16), now=wall)

    def begin(self, work: Work | None, *, now: float, wall: int, origin: Origin | None = None) -> Attempt:
        """Count an attempt, or raise WorkNeeded or TooManyRequests.

        Pass the result to `forgive` to undo it.
        """
        self._forget(now)
        self._refuse_too_many(origin, now)
        bits = bits_asked(len(self._failed), self._policy)
        if bits and not self._is_enough(work, bits, wall):
            asked = make_challenge(self._key, bits=bits, nonce=secrets.token_hex(16), now=wall)
            raise WorkNeeded(
                why="many wrong codes are being tried here",
                challenge=asked.text,
                bits=asked.bits,
                expires=asked.expires,
            )
        attempt = Attempt(now, () if origin is None else origin.names)
        self._failed.append(attempt)
        self._remembered.append(attempt)
        self._recent.update(attempt.names)
        self._wrong.update(attempt.names)
        return attempt

    def forgive(self, begun: Attempt) -> None:
        """Give an attempt back, because the code was right."""
        for kept, counted in ((self._failed, self._recent), (self._remembered, self._wrong)):
            try:
                kept.remove(begun)
            except ValueError:
                continue
            _uncount(counted, begun)

    def _refuse_too_many(self, origin: Origin | None, now: float) -> None:
        limit = self._policy.attempts_per_minute
        share = max(NETWORK_LEAST, limit // NETWORK_PART)
        if origin is not None and self._recent[f"network:{origin.network}"] >= share:
            raise TooManyRequests(
                limit=share,
                retry_after_s=math.ceil(WINDOW_S),
                per="network",
                hint="Too many wrong codes came from your network; no card is lost, wait and try again.",
            )
        if len(self._failed) >= limit and not self._seems_honest(origin):
            raise TooManyRequests(
                limit=limit,
                retry_after_s=max(1, math.ceil(self._failed[0].at + WINDOW_S - now)),
                per="platform",
                hint="Too many wrong codes are being tried here; no card is lost, wait and try again.",
            )

    def _seems_honest(self, origin: Origin | None) -> bool:
        if origin is None:
            return False
        own = [name for name in origin.names if not name.startswith("network:")]
        return not any(self._wrong[name] for name in own) and (
            self._wrong[f"network:{origin.network}"] < NETWORK_WRONG
        )

    def _is_enough(self, work: Work | None, bits: int, wall: int) -> bool:
        if work is None or work.challenge in self._solved:
            return False
        asked = read_challenge(self._key, work.challenge, now=wall)
        # A challenge of a moment ago may be a little easier than the next; an old easy one does not do.
        if asked is None or asked.bits < bits - 1:
            return False
        if not is_solved(work.challenge, work.solution, asked.bits):
            return False
        for text in [text for text, expires in self._solved.items() if expires <= wall]:
            del self._solved[text]
        self._solved[work.challenge] = asked.expires
        return True

    def _forget(self, now: float) -> None:
        for kept, counted, lasts_s in (
            (self._failed, self._recent, WINDOW_S),
            (self._remembered, self._wrong, REMEMBERED_S),
        ):
            while kept and kept[0].at <= now - lasts_s:
                _uncount(counted, kept.popleft())


def _uncount(counted: Counter[str], attempt: Attempt) -> None:
    counted.subtract(attempt.names)
    for name in attempt.names:
        if counted[name] <= 0:
            del counted[name]
