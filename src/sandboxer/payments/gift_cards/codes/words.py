"""Four words of 7,776: made at random, read as people write them, and known to us only by a keyed hash.

7776⁴ ≈ 3.66·10¹⁵ codes, 51.7 bits. That is too little to be kept as a plain hash (a copy of the database
would be searched in hours), so the hash is keyed with a pepper that only `master.key` gives; and enough
against guessing over the network, where the whole platform answers so many attempts a minute (attempts.py).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from functools import cache
from pathlib import Path

from sandboxer.kernel.errors import InvalidRequest

WORDS = 4
LIST = Path(__file__).with_name("words.txt")
LOOKUP_INFO = "gift-card-lookup-v1"
# What people put between words, and what copying adds around them.
_BETWEEN = re.compile(r"[\s\-_.,+/]+")
_LONGEST = 200


@cache
def word_list() -> tuple[str, ...]:
    lines = LIST.read_text("ascii").splitlines()
    return tuple(line for line in lines if line and not line.startswith("#"))


def new_code() -> str:
    """Shown to the buyer, once; kept nowhere."""
    words = word_list()
    return "-".join(secrets.choice(words) for _ in range(WORDS))


def normalised(code: str) -> str:
    """The same words in any case, with any space or hyphens. Raises InvalidRequest for anything else.

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
    """By which a card is found. Whoever has the database and not the pepper can test no guess."""
    return hmac.new(pepper, normalised(code).encode(), hashlib.sha256).hexdigest()


@cache
def _known() -> frozenset[str]:
    return frozenset(word_list())
