"""Is an address one of this host's own? The kernel is asked each time, since addresses come and go.

A host's public address leads back into the host, to whatever listens there behind the walls. The routing
table knows every such address: of each interface, of the loopback, and those that are merely routed to it.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct

_NETLINK_ROUTE = 0
_NEWROUTE, _GETROUTE, _ERROR = 24, 26, 2
_REQUEST = 1
_DESTINATION = 1
# A route that leads out, to somebody else; all other kinds end here or nowhere.
_UNICAST = 1
_HEADER = struct.Struct("=IHHII")
_ROUTE = struct.Struct("=BBBBBBBBI")
_ATTRIBUTE = struct.Struct("=HH")
_NO_WAY = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES})


class OwnAddresses:
    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._asked = 0

    def has(self, address: str) -> bool:
        """True, too, if the kernel gives no plain answer."""
        try:
            return self._ask(address) != _UNICAST
        except OSError as error:
            # Without a way there is nothing to keep it from; whoever tries finds out.
            return error.errno not in _NO_WAY

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ask(self, address: str) -> int:
        """The kind of the route to it."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_ROUTE)
            # Its answer is there when the question has been asked; this is for a kernel that has none.
            self._socket.settimeout(1.0)
        self._asked = (self._asked + 1) & 0x7FFFFFFF
        self._socket.send(_question(address, self._asked))
        while True:
            answer = self._socket.recv(16 * 1024)
            _, kind, _, number, _ = _HEADER.unpack_from(answer)
            if number != self._asked:
                continue
            if kind == _ERROR:
                (code,) = struct.unpack_from("=i", answer, _HEADER.size)
                raise OSError(-code, "no route")
            if kind == _NEWROUTE:
                return int(_ROUTE.unpack_from(answer, _HEADER.size)[7])


def _question(address: str, number: int) -> bytes:
    parsed = ipaddress.ip_address(address)
    # An IPv4 address that is written as IPv6 has the routes of the former.
    packed = (getattr(parsed, "ipv4_mapped", None) or parsed).packed
    family = socket.AF_INET if len(packed) == 4 else socket.AF_INET6
    route = _ROUTE.pack(family, len(packed) * 8, 0, 0, 0, 0, 0, 0, 0)
    attribute = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(packed), _DESTINATION) + packed
    length = _HEADER.size + len(route) + len(attribute)
    return _HEADER.pack(length, _GETROUTE, _REQUEST, number, 0) + route + attribute
