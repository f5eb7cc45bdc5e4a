"""The door by path serves ports on the API's own listener: `/v1/sandboxes/{id}/ports/{port}/…`.

It opens to a signature (or a wallet's session) of somebody who may see the sandbox, to a preview's token, and
to everyone if the port is public. It shares the platform's origin, so answers are kept from acting in the
platform's name.

A connection of the API's listener is handed over for each request for a port, but only at the very beginning
of a request, when the previous one is read and answered completely: no body is ever taken for a request.
"""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from sandboxer.access.connections import Slot
from sandboxer.access.http1.heads import CREDENTIALS, PREVIEW_HEADER, RequestHead
from sandboxer.access.ports.ports import PortAddress, closed, read_path, widened
from sandboxer.access.ports.targets import Target
from sandboxer.accounts.authority import demand_active, demand_needs
from sandboxer.edges.front.http import StrictHttp
from sandboxer.edges.http.disconnection import standing_of
from sandboxer.edges.http.operator_audit import note_relay
from sandboxer.edges.proxy.answers import Origin, name_of
from sandboxer.edges.proxy.client import ClientConnection, Proxy
from sandboxer.edges.proxy.doors import Admission, Peer, Standing, VisitorLimits, Way, owners
from sandboxer.edges.proxy.host_door import private, without_token
from sandboxer.identity.authenticate import BodyCheck
from sandboxer.identity.keys import Caller, holds_token
from sandboxer.identity.sessions.tokens import HEADER, session_token
from sandboxer.kernel.errors import NotFound, Unauthenticated, or_not_found
from sandboxer.kernel.program import late
from sandboxer.wiring import Platform

if TYPE_CHECKING:
    from sandboxer.wire.operations import access as operations
else:
    operations = late("sandboxer.wire.operations.access")

_MINE = re.compile(rb"[A-Z]{1,16} /v1/sandboxes/sbx_[0-9a-z]{26}/ports/[0-9]{1,5}[/? ]")
_NAMES_A_CALLER = frozenset({b"x-signature", b"sign-in-with-x"})
_SESSION = HEADER.encode()


class PathDoor:
    def __init__(self, platform: Platform, visitor_limits: VisitorLimits) -> None:
        self._platform = platform
        self._visitor_limits = visitor_limits
        self._ports = platform.access.ports
        self._owners = owners(platform.authorities, platform.clock)

    def is_mine(self, data: bytes) -> bool:
        return _MINE.match(data) is not None

    def glance(self, head: RequestHead) -> Admission | None:
        """Returns None: signed requests are decided anew each time."""
        return None

    async def admit(self, head: RequestHead, peer: Peer) -> Admission | bytes:
        with self._visitor_limits.counting_refusals(head, peer):
            return await self._admit(head, peer)

    async def _admit(self, head: RequestHead, peer: Peer) -> Admission | bytes:
        shown, hint = head.target[:80].decode("latin-1"), "Copy the whole address of the port."
        found = or_not_found(read_path(head.target), what="port", id=shown, hint=hint)
        address, prefix, rest = found
        rest, token = without_token(rest)
        given = head.values(PREVIEW_HEADER)
        link = given[0].decode("latin-1") if given else token
        check: BodyCheck | None = None
        stands: Standing | None = None
        target = await self._find(address)
        if link is not None:
            target, stands = await self._by_link(link, target)
            head.lines[:] = [line for line in head.lines if not _is_credential_of_ours(line)]
        elif b"x-signature" in (names := {name_of(line) for line in head.lines}) or (
            not target.is_public and names & CREDENTIALS
        ):
            target, check, stands = await self._by_caller(head, peer, address)
            head.lines[:] = [line for line in head.lines if name_of(line) not in CREDENTIALS]
        elif not target.is_public:
            raise private()
        else:
            await self._owners(target.account)
            stands = partial(self._owners, target.account)
            head.lines[:] = [line for line in head.lines if not _is_credential_of_ours(line)]
        way = Way(target, self._ports.passages.of(target.sandbox_id), prefix, Origin.PLATFORM)
        # No cookies are passed on: those of this origin belong to the platform.
        return Admission(way, rest, [], check, stands, partial(self._ports.renewed, target))

    async def _find(self, address: PortAddress) -> Target:
        """Returns a closed target if there is no such sandbox: only those who may see a sandbox learn whether
        it exists.
        """
        try:
            return await self._ports.by_address(address)
        except NotFound:
            return closed(address)

    async def _by_link(self, token: str, target: Target) -> tuple[Target, Standing]:
        preview, _ = await self._ports.previews.open_by_link(token, target.sandbox_id, target.port)
        await self._owners(target.account)

        async def stands() -> None:
            await self._owners(target.account)
            await self._ports.previews.demand(preview)

        return widened(target, preview), stands

    async def _by_caller(
        self, head: RequestHead, peer: Peer, address: PortAddress
    ) -> tuple[Target, BodyCheck | None, Standing]:
        caller, check, session = await self._identify(head)
        if caller.is_owner:
            path, _, query = head.target.partition(b"?")
            await note_relay(self._platform, caller, address.sandbox_id, head.method, path, query)
        else:
            await self._judge(head, peer, caller)
        target = await self._ports.for_caller(address, caller)
        return target, check, standing_of(self._platform, caller, session)

    async def _identify(self, head: RequestHead) -> tuple[Caller, BodyCheck | None, str | None]:
        platform, pairs = self._platform, _pairs(head)
        if (session := session_token(pairs)) is not None:
            return await platform.wallets.sessions.authenticate(session), None, session
        verdict = await platform.authenticator.check_head(
            pairs, head.method.decode(), head.target.decode("latin-1"), platform.clock.now()
        )
        if not verdict.needs_body:
            check = verdict.body_check()
            if head.has_body:
                return verdict.caller, check, None
            # No body follows that could be compared later, so the signature must be over an empty body.
            check.finish()
            return verdict.caller, None, None
        if head.has_body:
            raise Unauthenticated(
                why="a body for a port is signed with version 2",
                reason="v1_not_allowed",
                hint="Add X-Nonce and X-Content-SHA256, or use a preview's token.",
            )
        verdict.verify(b"")
        return verdict.caller, None, None

    async def _judge(self, head: RequestHead, peer: Peer, caller: Caller) -> None:
        now = self._platform.clock.now()
        authority = await self._platform.authorities.of(caller)
        self._visitor_limits.count(head, peer, authority.sender(caller, now=now))
        demand_active(authority, now=now)
        if authority.is_delegated:
            demand_needs(authority, operations.RELAY_PORT.needs, now=now)


def _is_credential_of_ours(line: bytes) -> bool:
    """Tells whether a line identifies a caller to the platform. The program inside, which may be anybody's,
    must not see it.
    """
    if (name := name_of(line)) == b"authorization":
        return _SESSION in line or holds_token(line)
    return name in _NAMES_A_CALLER


def _pairs(head: RequestHead) -> list[tuple[bytes, bytes]]:
    return [(name_of(line), line[line.find(b":") + 1 :].strip(b" \t\r\n")) for line in head.lines]


def api_protocol(proxy: Proxy, door: PathDoor) -> type[StrictHttp]:
    """Returns the API's protocol, which hands requests for ports to the proxy."""

    class ApiProtocol(StrictHttp):
        front = proxy.front

        def _is_for_another(self, buffer: bytes) -> bool:
            # A sandbox has the API and nothing beside it: ports are a network.
            if not door.is_mine(buffer) or self._slot is None or self._slot.sandbox is not None:
                return False
            self._buffer = b""
            self.connections.discard(self)
            taker = PortsByPath(proxy, door, self, self._slot)
            self.transport.set_protocol(taker)
            taker.connection_made(self.transport)
            taker.data_received(buffer)
            return True

        def take_back(self, data: bytes) -> None:
            self.connections.add(self)
            self.transport.set_protocol(self)
            if self._slot is not None:
                self._slot.holder = self
            self.deadline = self._idle_until()
            self.data_received(data)

    return ApiProtocol


class PortsByPath(ClientConnection):
    """Serves ports until something else is asked for, then gives the connection back."""

    def __init__(self, proxy: Proxy, door: PathDoor, giver: StrictHttp, slot: Slot) -> None:
        super().__init__(proxy, door, slot)
        self._giver = giver

    def _pass_door(self) -> None:
        data, self._buffer = self._buffer, b""
        self._proxy.connections.discard(self)
        self._giver.take_back(data)  # type: ignore[attr-defined]

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._giver.connection_lost(exc)
