"""TLS that ends at the proxy: the handshake with the program inside, and the headers that carry secrets.

`opening` tells what the first bytes of a tunnel begin, and `server_name` reads the name in the first message
of TLS, without opening anything. Every byte is untrusted.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from enum import Enum, auto

from sandboxer.access.egress.outlet import Outlet
from sandboxer.access.egress.policy import Ask, Deny
from sandboxer.access.egress.proxy.dialer import Means, Refused
from sandboxer.access.egress.proxy.exchange import ESTABLISHED
from sandboxer.access.egress.proxy.wire import Gone, Wire
from sandboxer.access.http1.heads import BadHead

# Headers that make servers and frameworks act on another method or path than the request line says.
_OVERRIDES = frozenset(
    {
        b"x-forwarded-uri",
        b"x-http-method",
        b"x-http-method-override",
        b"x-http-path-override",
        b"x-method-override",
        b"x-original-uri",
        b"x-original-url",
        b"x-override-url",
        b"x-rewrite-url",
    }
)
# A hello is one message in a few records; with post-quantum keys it has 2 KiB, far below this.
MAX_HELLO = 16 * 1024
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME = 22, 1, 0
# A fatal alert, access denied, for a client that got this far.
ALERT_DENIED = b"\x15\x03\x03\x00\x02\x02\x31"


# Servers pass over empty lines before a request, and some take any word for a method, or any version that
# they know: HTTP/2 without TLS begins with such a line, too.
_METHOD = rb"[\r\n]*[!#-'*+.^-z|~A-Z0-9-]{1,200}"
_REQUEST = re.compile(_METHOD + rb"[ \t][^\r\n]*[ \t](?i:HTTP)/[0-9.]+[ \t]*\r?\n")
_MAY_BE_REQUEST = re.compile(rb"[\r\n]*|" + _METHOD + rb"([ \t][^\r\n]*\r?)?")


class NotTls(Exception):
    """What came is no beginning of TLS."""


class Opening(Enum):
    TLS = auto()
    HTTP = auto()
    OTHER = auto()


def opening(data: bytes) -> Opening | None:
    """Says what the first bytes of a tunnel begin; None while that cannot be said."""
    if data[:1] == bytes([_HANDSHAKE]) and data[1:2] in (b"", b"\x03"):
        return Opening.TLS if is_whole(data) else None
    if _REQUEST.match(data):
        return Opening.HTTP
    is_open = len(data) <= MAX_HELLO and _MAY_BE_REQUEST.fullmatch(data)
    return None if is_open else Opening.OTHER


def override_of(lines: list[bytes]) -> str | None:
    """Returns the first header that may change what the request asks for; CGI reads `_` as `-`."""
    for line in lines:
        name = line.partition(b":")[0]
        if name.lower().replace(b"_", b"-") in _OVERRIDES:
            return name.decode("latin-1")
    return None


async def shake_hands(outlet: Outlet, client: Wire, ask: Ask, means: Means) -> None:
    """Performs the handshake. Raises BadHead, Gone."""
    authority = outlet.authority
    if authority is None or client.has_early_bytes:
        raise BadHead("TLS begins after the answer to CONNECT")
    context = authority.context_for(ask.host, means.now())
    client.write(ESTABLISHED)
    try:
        opened = await asyncio.get_running_loop().start_tls(
            client.transport,
            client,
            context,
            server_side=True,
            ssl_handshake_timeout=means.patience.head_s,
        )
    except (ssl.SSLError, ConnectionError) as error:
        why = "the program inside did not take our certificate; it must trust SSL_CERT_FILE"
        outlet.refuse(Deny("no_handshake", f"{why} ({error})"), ask)
        raise Gone from None
    if opened is None:
        raise Gone
    client.connection_made(opened)


async def secret_lines(outlet: Outlet, host: str, means: Means) -> list[bytes]:
    """Returns the header lines with secrets. Raises Refused for a secret that is missing or unfit for a
    header.
    """
    lines = []
    for one in outlet.rules.injections(host):
        value = await means.secrets.value_of(outlet.account, one.secret)
        if value is None:
            raise Refused(Deny("no_secret", f"there is no secret {one.secret} to put into {one.header}"))
        text = one.form.replace("{}", value)
        if not text.isprintable() or not text.isascii():
            raise Refused(Deny("no_secret", f"the secret {one.secret} cannot be put into a header"))
        lines.append(f"{one.header}: {text}\r\n".encode())
    return lines


def without(lines: list[bytes], replacing: list[bytes]) -> list[bytes]:
    """Returns the lines whose headers nothing replaces."""
    replaced = {line.partition(b":")[0].lower() for line in replacing}
    return [line for line in lines if line.partition(b":")[0].lower() not in replaced]


def is_whole(data: bytes) -> bool:
    """Tells whether the hello is complete. It is also True for what is not a hello: reading it then fails."""
    try:
        return _message(data) is not None
    except NotTls:
        return True


def server_name(data: bytes) -> str | None:
    """Returns the name it asks for, or None if it asks for none. Raises NotTls."""
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
