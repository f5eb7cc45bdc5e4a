"""Reading bytes that a stranger sent: every read is bounded, and every refusal is the same typed error."""

from __future__ import annotations

import re

from sandboxer.identity.signatures.c32 import StacksAddress
from sandboxer.kernel.errors import InvalidRequest

_VERSIONS = 32
CONTRACT_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_-]{0,39}")
CLARITY_NAME = re.compile(r"[a-zA-Z][a-zA-Z0-9_!?+<>=/*-]{0,127}|[-+=/*]|[<>]=?")


def malformed(why: str, reason: str = "malformed_transaction") -> InvalidRequest:
    return InvalidRequest(
        field="transaction",
        why=why,
        reason=reason,
        hint="Send the hex of a signed, sponsored, single-signer Stacks transfer.",
    )


class Cursor:
    """A place in some bytes; moves forward only."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._raw) - self._at

    def take(self, count: int) -> bytes:
        if count > self.left:
            raise malformed(f"it ends {count - self.left} bytes too early")
        self._at += count
        return self._raw[self._at - count : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def one_of(self, allowed: frozenset[int], what: str) -> int:
        value = self.number(1)
        if value not in allowed:
            raise malformed(f"{what} {value} is not known")
        return value

    def count(self, *, smallest: int, what: str) -> int:
        """A list's length, refused before anything is made when so many cannot follow."""
        count = self.number(4)
        if count * smallest > self.left:
            raise malformed(f"{count} {what} do not fit into what is left")
        return count

    def name(self, pattern: re.Pattern[str]) -> str:
        text = self.take(self.number(1)).decode("ascii", errors="replace")
        if pattern.fullmatch(text) is None:
            raise malformed("a name holds letters that names cannot have")
        return text

    def address(self) -> StacksAddress:
        version = self.number(1)
        if version >= _VERSIONS:
            raise malformed(f"address version {version} does not exist")
        return StacksAddress(version, self.take(20))

    def end(self) -> None:
        if self.left:
            raise malformed(f"{self.left} bytes follow its end")
