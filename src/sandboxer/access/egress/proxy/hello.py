"""The server name in the first words of TLS, read without opening anything. Every byte is hostile."""

from __future__ import annotations

# A hello is one message over one or a few records; with post-quantum keys 2 KiB, never near this.
MAX_HELLO = 16 * 1024
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
# Fatal: access denied. What a client is told that got this far.
ALERT_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"


class NotTls(Exception):
    """What came is no beginning of TLS."""


def is_whole(data: bytes) -> bool:
    """Is the whole hello here? True, too, for what is none: reading it says so."""
    try:
        return _message(data) is not None
    except NotTls:
        return True


def server_name(data: bytes) -> str | None:
    """The name it asks for; None if it asks for none. Raises NotTls."""
    message = _message(data)
    if message is None:
        raise NotTls("it is cut off")
    try:
        return _name(message)
    except (IndexError, ValueError):
        raise NotTls("its hello is malformed") from None


def _message(data: bytes) -> bytes | None:
    """The body of the hello, out of its records; None while some of it is missing."""
    body = bytearray()
    at = 0
    while True:
        if data[at : at + 1] not in (b"", bytes([_HANDSHAKE])) or data[at + 1 : at + 2] not in (b"", b"\x03"):
            raise NotTls("it does not begin like TLS")
        if len(data) - at < 5:
            return None
        length = int.from_bytes(data[at + 3 : at + 5])
        if not length or length > MAX_HELLO:
            raise NotTls("a record has an impossible length")
        body += data[at + 5 : at + 5 + length]
        if body[:1] != bytes([_CLIENT_HELLO]):
            raise NotTls("it is no hello")
        if len(body) >= 4:
            whole = 4 + int.from_bytes(body[1:4])
            if whole > MAX_HELLO:
                raise NotTls("its hello is too long")
            if len(body) >= whole:
                return bytes(body[4:whole])
        if len(data) < at + 5 + length:
            return None
        at += 5 + length


def _name(hello: bytes) -> str | None:
    at = 2 + 32
    at += 1 + hello[at]
    at += 2 + _u16(hello, at)
    at += 1 + hello[at]
    if at == len(hello):
        return None
    end = at + 2 + _u16(hello, at)
    if end != len(hello):
        raise ValueError
    at += 2
    found: str | None = None
    while at < end:
        kind, length = _u16(hello, at), _u16(hello, at + 2)
        body = hello[at + 4 : at + 4 + length]
        if len(body) != length:
            raise ValueError
        if kind == _SERVER_NAME:
            if found is not None:
                raise ValueError
            found = _listed(body)
        at += 4 + length
    return found


def _listed(body: bytes) -> str:
    """Exactly one name, of the one kind there is."""
    length = _u16(body, 3)
    if _u16(body, 0) != len(body) - 2 or body[2] != 0 or length != len(body) - 5:
        raise ValueError
    return body[5:].decode("ascii")


def _u16(data: bytes, at: int) -> int:
    if at + 2 > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + 2])
