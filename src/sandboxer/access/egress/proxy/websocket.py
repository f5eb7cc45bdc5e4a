"""Did both sides really agree to speak WebSocket? (RFC 6455, 4.2.2.)

After it nothing is read any more, so an upstream that merely says 101 does not get a tunnel.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence

_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def key_of(lines: Sequence[bytes]) -> bytes | None:
    return _only(lines, b"sec-websocket-key")


def is_agreed(key: bytes | None, answer_lines: Sequence[bytes]) -> bool:
    if key is None:
        return False
    proof = base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest())
    return _only(answer_lines, b"sec-websocket-accept") == proof


def _only(lines: Sequence[bytes], name: bytes) -> bytes | None:
    """Its value, if it is there exactly once."""
    found = [
        value.strip() for key, _, value in (line.partition(b":") for line in lines) if key.lower() == name
    ]
    return found[0] if len(found) == 1 else None
