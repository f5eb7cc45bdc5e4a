"""Who is on the other end, and what the program inside is told about it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address

from sandboxer.access.http1.heads import RequestHead
from sandboxer.accounts.limits import Network

_SCHEMES = frozenset({b"http", b"https"})


@dataclass(frozen=True, slots=True)
class Peer:
    address: str
    is_trusted: bool
    # What a stranger's requests are given, but for the host.
    lines: bytes

    def scheme(self, head: RequestHead) -> bytes:
        given = head.values(b"x-forwarded-proto")
        if self.is_trusted and given and given[-1] in _SCHEMES:
            return given[-1]
        return b"http"

    def forwarded(self, head: RequestHead, prefix: bytes) -> bytes:
        """X-Forwarded-*: what a stranger says about itself is replaced, what our own proxy says is kept."""
        after = b"" if not prefix else b"X-Forwarded-Prefix: " + prefix + b"\r\n"
        if not self.is_trusted:
            return self.lines + head.host + b"\r\n" + after
        chain = b", ".join([*head.values(b"x-forwarded-for"), self.address.encode()])
        given = head.values(b"x-forwarded-host")
        host = given[0] if given else head.host
        said = b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: %b\r\nX-Forwarded-Host: %b\r\n"
        return said % (chain, self.scheme(head), host) + after


def peer_of(name: object, trusted: Sequence[Network]) -> Peer:
    """`name` is a transport's peername."""
    address = str(name[0]) if isinstance(name, tuple) and name else "unknown"
    address = address.removeprefix("::ffff:").partition("%")[0]
    lines = b"X-Forwarded-For: %b\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: " % address.encode()
    return Peer(address, _is_trusted(address, trusted), lines)


def _is_trusted(address: str, trusted: Sequence[Network]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return any(parsed.version == network.version and parsed in network for network in trusted)
