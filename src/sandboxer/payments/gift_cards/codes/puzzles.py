"""Proof of work: find a number whose hash with the challenge begins with so many zero bits. Pure.

A challenge is signed and says itself how hard it is and until when it holds, so nothing is kept for those
who ask; only solved ones are remembered until they expire, because each buys one attempt.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass

LIVES_S = 300
_FORM_VERSION = "w1"


@dataclass(frozen=True, slots=True)
class Challenge:
    text: str
    bits: int
    expires: int


def make_challenge(key: bytes, *, bits: int, nonce: str, now: int) -> Challenge:
    head = f"{_FORM_VERSION}.{bits}.{now + LIVES_S}.{nonce}"
    return Challenge(f"{head}.{_mac(key, head)}", bits, now + LIVES_S)


def read_challenge(key: bytes, text: str, *, now: int) -> Challenge | None:
    """None: not ours, or too old."""
    head, _, mac = text.rpartition(".")
    if not hmac.compare_digest(_mac(key, head), mac):
        return None
    _, bits, expires, _ = head.split(".")
    if int(expires) <= now:
        return None
    return Challenge(text, int(bits), int(expires))


def is_solved(challenge: str, solution: str, bits: int) -> bool:
    digest = hashlib.sha256(f"{challenge}:{solution}".encode()).digest()
    return int.from_bytes(digest) >> (256 - bits) == 0


def _mac(key: bytes, head: str) -> str:
    return hmac.new(key, head.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:32]
