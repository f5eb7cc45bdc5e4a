"""The work that a platform asks for when many wrong codes are tried: see `work_needed` in the errors."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping

from sandboxer.sdk.errors import ApiError, BrokenAnswer

WORK_NEEDED = "work_needed"
# The work asked for may grow while one is at it.
MOST_PUZZLES = 5

# More than any honest platform asks for: hours of hashing.
MAX_BITS = 32


def solve(challenge: str, bits: int) -> str:
    """A text for which SHA-256 of `challenge:text` begins with so many zero bits: 2^bits hashes or so."""
    if not 0 <= bits <= MAX_BITS:
        raise BrokenAnswer(f"a proof of work of {bits} bits was asked for")
    begun = hashlib.sha256(f"{challenge}:".encode())
    for number in itertools.count():
        tried = begun.copy()
        tried.update(b"%d" % number)
        if not int.from_bytes(tried.digest()) >> (256 - bits):
            return str(number)
    raise AssertionError("counting does not end")


def puzzle_in(error: ApiError) -> tuple[str, int] | None:
    """The work that a refusal asks for; None: it was refused for something else."""
    if error.code != WORK_NEEDED:
        return None
    return str(error.fact("challenge")), int(error.fact("bits"))


def work_for(challenge: str, bits: int) -> Mapping[str, str]:
    """Seconds of hashing at worst."""
    return {"challenge": challenge, "solution": solve(challenge, bits)}
