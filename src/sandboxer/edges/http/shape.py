"""How much structure a large body has, counted as it comes, before anybody reads it as JSON.

Reading 12 MiB of text takes milliseconds; 12 MiB of `0,0,0,…` takes a second in which nobody else is served,
in a thread as well, since readers do not let go of the interpreter. No request of ours needs more than a few
thousand values, so what has more is refused when the first piece of it has come.
"""

from __future__ import annotations

from sandboxer.kernel.errors import TooLarge

# Quotes, commas, colons and opening brackets: five or so for a member of an object.
MAX_MARKS = 32_768
_SEPARATORS = (b",", b":", b"[", b"{")


class Shape:
    """Fed with a body piece by piece. Whether it is JSON at all is for its reader to say."""

    __slots__ = ("_is_inside", "_rest", "marks")

    def __init__(self) -> None:
        self.marks = 0
        # Inside a string, and a backslash whose character is still to come.
        self._is_inside = False
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        """Raises TooLarge."""
        # Each step is a look at the whole piece in C: what is escaped goes, and quotes part in from out.
        plain = (self._rest + piece).replace(b"\\\\", b"").replace(b'\\"', b"")
        self._rest = b"\\" if plain.endswith(b"\\") else b""
        parts = plain.split(b'"')
        outside = b"".join(parts[1 if self._is_inside else 0 :: 2])
        self._is_inside ^= len(parts) % 2 == 0
        self.marks += len(parts) - 1 + sum(outside.count(one) for one in _SEPARATORS)
        if self.marks > MAX_MARKS:
            raise TooLarge(what="The number of values in the body", limit=f"about {MAX_MARKS // 5}")
