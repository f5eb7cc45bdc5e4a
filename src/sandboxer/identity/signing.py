"""What a signature covers, byte for byte. Pure; the server's side of what every client repeats.

v2 is unambiguous: of its parts only the path may hold a colon, and it is followed by 64 hex digits.
v1 is as existing clients do it, and is not: see `v1_is_ambiguous`. The paper's form puts its parts end to
end: a method has no slash, and from the end come 64 hex digits and the 10 digits of the time. None can be
taken for another: v2 starts with "v2:", v1 with digits, the paper's with the letters of a method.
"""

from __future__ import annotations

import hashlib
import hmac

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def canonical_v2(timestamp: str, nonce: str, method: str, path_with_query: str, content_sha256: str) -> bytes:
    return f"v2:{timestamp}:{nonce}:{method}:{path_with_query}:{content_sha256}".encode()


def canonical_v1(timestamp: str, method: str, path_with_query: str, body: bytes) -> bytes:
    return f"{timestamp}:{method}:{path_with_query}:".encode() + body


def canonical_paper(timestamp: str, method: str, path_with_query: str, body: bytes) -> bytes:
    return f"{method}{path_with_query}{timestamp}{hashlib.sha256(body).hexdigest()}".encode()


def v1_is_ambiguous(path_with_query: str) -> bool:
    """A bare colon would let a captured request's body begin where its path ended, or the reverse."""
    return ":" in path_with_query


def sign(secret: bytes, canonical: bytes) -> str:
    """Lower-case hex HMAC-SHA256."""
    return hmac.digest(secret, canonical, "sha256").hex()


def matches(expected: str, given: str) -> bool:
    """In constant time, for any text: as `str`, `compare_digest` refuses all but ASCII."""
    return hmac.compare_digest(
        expected.encode("utf-8", "surrogatepass"), given.encode("utf-8", "surrogatepass")
    )
