"""Looks names up and judges addresses, for everything that dials on a tenant's behalf: egress of sandboxes,
webhooks, proofs of domains.

A name can point anywhere, and anywhere else a moment later, so the question is asked about the very address
that is connected to. This host's own addresses lead back behind its walls; they are nobody's to reach, and
neither are the networks that its operator names.

Each name is looked up in a thread of its own: a name server that does not answer must not hold up other
work, and nobody's look-up waits behind another's. A look-up cannot be cancelled. It counts against whoever
asked until its thread has ended, however long ago the asker gave up, and whoever asked for a slow one has one
at a time until one of them is quick: so nobody has more than a few threads, and slow names cost their owner.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
import struct
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache

# In all: a thread that waits for an answer costs some 50 KB.
THREADS = 1024
EACH = 4
WAIT_S = 2.0
SLOW_S = 1.0
_REMEMBERED = 10_000

_Found = Sequence[str] | OSError | UnicodeError


class TooManyLookups(Exception):
    """The caller has as many look-ups under way as one caller may have."""


@dataclass(slots=True, eq=False)
class _Turns:
    """Counts what one asker has under way; the others of his wait, in order."""

    under_way: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


@dataclass(slots=True)
class Lookups:
    name: str
    threads: int = THREADS
    each: int = EACH
    wait_s: float = WAIT_S
    slow_s: float = SLOW_S
    _turns: dict[str, _Turns] = field(default_factory=dict, init=False)
    _under_way: dict[str, asyncio.Future[_Found]] = field(default_factory=dict, init=False)
    # Who asked for a name that took long, the longest ago first.
    _slow: OrderedDict[str, None] = field(default_factory=OrderedDict, init=False)

    async def addresses(self, host: str, *, owner: str) -> Sequence[str]:
        """Returns the addresses of a name. Raises OSError (gaierror) or UnicodeError if it has none,
        TooManyLookups.
        """
        if (under_way := self._under_way.get(host)) is None:
            await self._take_turn(owner)
            if (under_way := self._under_way.get(host)) is None:
                under_way = self._begin(host, owner)
            else:
                self._end_turn(owner)
        found = await asyncio.shield(under_way)
        if isinstance(found, Exception):
            raise found
        return found

    def _begin(self, host: str, owner: str) -> asyncio.Future[_Found]:
        loop, began = asyncio.get_running_loop(), time.monotonic()
        begun: asyncio.Future[_Found] = loop.create_future()

        def done(found: _Found) -> None:
            self._under_way.pop(host, None)
            self._note(owner, time.monotonic() - began)
            self._end_turn(owner)
            begun.set_result(found)

        def look_up() -> None:
            found = _look_up(host)
            # A loop that is closed has nobody who waits.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(done, found)

        try:
            # A daemon: it must not hold up the end of the server either.
            threading.Thread(target=look_up, name=f"name for {self.name}", daemon=True).start()
        except RuntimeError:
            self._end_turn(owner)
            raise TooManyLookups("the host has no thread left to look names up") from None
        self._under_way[host] = begun
        return begun

    def _note(self, owner: str, took_s: float) -> None:
        self._slow.pop(owner, None)
        if took_s >= self.slow_s:
            self._slow[owner] = None
            if len(self._slow) > _REMEMBERED:
                self._slow.popitem(last=False)

    def _places(self, owner: str) -> int:
        return 1 if owner in self._slow else self.each

    async def _take_turn(self, owner: str) -> None:
        if owner not in self._turns and len(self._under_way) >= self.threads:
            raise TooManyLookups(f"{self.threads} names are being looked up already, of all together")
        turns = self._turns.setdefault(owner, _Turns())
        if turns.under_way >= self._places(owner):
            mine = asyncio.get_running_loop().create_future()
            turns.waiting.append(mine)
            try:
                async with asyncio.timeout(self.wait_s):
                    await mine
            except BaseException as error:
                if mine in turns.waiting:
                    turns.waiting.remove(mine)
                elif not mine.cancelled():
                    # It was given a turn, and does not want it any more.
                    self._end_turn(owner)
                if isinstance(error, TimeoutError):
                    raise TooManyLookups(f"{turns.under_way} names are being looked up already") from None
                raise
            return
        turns.under_way += 1

    def _end_turn(self, owner: str) -> None:
        turns = self._turns[owner]
        turns.under_way -= 1
        while turns.waiting and turns.under_way < self._places(owner):
            turn = turns.waiting.popleft()
            if not turn.done():
                turns.under_way += 1
                turn.set_result(None)
        if not turns.under_way:
            self._turns.pop(owner, None)


def _look_up(host: str) -> _Found:
    """Resolves a name in a thread. Returns what went wrong instead of raising it: the caller may have
    given up.
    """
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        return error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
# Ways to write an IPv4 address as IPv6: a gateway would carry them where the IPv4 wall does not let them.
_CARRIERS = tuple(
    ipaddress.IPv6Network(net)
    for net in ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16")
)
# `is_global` takes them for public: protocol assignments (one cloud's metadata is there), the way from 6to4,
# and another cloud's own platform address.
_NOT_PUBLIC = tuple(
    ipaddress.IPv4Network(net) for net in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32")
)

_UNIQUE_LOCAL = ipaddress.IPv6Network("fc00::/7")
# Where one cloud tells its machines their secrets.
_METADATA_6 = ipaddress.IPv6Network("fd00:ec2::/32")


def permitted(address: Address, *, allow_private: bool) -> bool:
    """Says whether a tenant may connect to this address."""
    if (mapped := getattr(address, "ipv4_mapped", None)) is not None:
        address = mapped
    if address.is_multicast or address.is_unspecified:
        return False
    if allow_private:
        return True
    if isinstance(address, ipaddress.IPv6Address):
        if address.is_site_local or any(address in carrier for carrier in _CARRIERS):
            return False
    elif any(address in net for net in _NOT_PUBLIC):
        return False
    return address.is_global and not address.is_reserved


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
        """Says whether an address is this host's own. True, too, if the kernel gives no clear answer."""
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
        """Asks the kernel for the kind of the route to an address."""
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


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Verdict(Enum):
    GOOD = "good"
    NOT_PUBLIC = "not_public"
    # This host, or what its operator keeps from tenants.
    OWN = "own"


class DialJudge:
    """Decides which addresses may be dialled. With `allow_private`, private addresses and this host are
    allowed too; that is for an operator's own use. With `is_near`, addresses of other machines in private
    networks are, and no others.
    """

    def __init__(
        self, *, allow_private: bool = False, is_near: bool = False, never: Sequence[Network] = ()
    ) -> None:
        self._allow_private = allow_private
        self._is_near = is_near
        self._never = tuple(never)
        self._own = OwnAddresses()

    def judge(self, address: str) -> Verdict:
        if not (_is_near(address) if self._is_near else _is_permitted(address, self._allow_private)):
            return Verdict.NOT_PUBLIC
        if self._is_never(address) or (not self._allow_private and self._own.has(address)):
            return Verdict.OWN
        return Verdict.GOOD

    def _is_never(self, address: str) -> bool:
        if not self._never:
            return False
        parsed = ipaddress.ip_address(address)
        parsed = getattr(parsed, "ipv4_mapped", None) or parsed
        return any(parsed in network for network in self._never)


@lru_cache(maxsize=4096)
def _is_near(address: str) -> bool:
    """Says whether another machine of a private network may have it: a cloud's metadata, for one, may not."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(found, ipaddress.IPv6Address):
        # Whatever carries an IPv4 address in it is none of them.
        return found in _UNIQUE_LOCAL and found not in _METADATA_6
    is_common = found.is_loopback or found.is_link_local or found.is_multicast or found.is_unspecified
    return found.is_private and not (
        is_common or found.is_reserved or any(found in net for net in _NOT_PUBLIC)
    )


@lru_cache(maxsize=4096)
def _is_permitted(address: str, allow_private: bool) -> bool:
    try:
        # A scope (`fe80::1%eth0`) belongs to what is near.
        if "%" in address and not allow_private:
            return False
        return permitted(ipaddress.ip_address(address.partition("%")[0]), allow_private=allow_private)
    except ValueError:
        return False
