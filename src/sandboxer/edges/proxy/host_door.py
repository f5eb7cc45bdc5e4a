"""The door by name admits requests for `{port}-{id}.{domain}`, a service's name, or a customer's own domain.

A private port opens to a preview's token (in the address once, or in a header) or to the cookie that the
token was exchanged for; in sandboxes of E2B's clients also to the token of their traffic. Decisions are
cached for a moment, until any preview changes. A program's own headers reach it unchanged; whatever would
identify a caller to the platform does not.

The listener that serves these names is opened here on an open platform, and closed with all its
connections.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from urllib.parse import unquote

from sandboxer.access.connections import Front, Patience
from sandboxer.access.http1.heads import CREDENTIALS, PREVIEW_HEADER, TRAFFIC_HEADER, RequestHead
from sandboxer.access.ports.ports import (
    COOKIE,
    QUERY,
    Ports,
    Preview,
    Where,
    closed,
    is_ours,
    read_host,
    widened,
    without_port,
)
from sandboxer.access.ports.targets import Again, Target
from sandboxer.edges.front.acceptor import Acceptor
from sandboxer.edges.proxy import answers
from sandboxer.edges.proxy.answers import Origin
from sandboxer.edges.proxy.client import ClientConnection, Proxy
from sandboxer.edges.proxy.doors import Admission, Owners, Peer, Standing, VisitorLimits, Way, owners
from sandboxer.edges.proxy.upstream import Pool
from sandboxer.identity.keys import holds_token
from sandboxer.identity.sandbox_tokens import TRAFFIC, SandboxTokens
from sandboxer.identity.sessions.tokens import HEADER
from sandboxer.kernel.errors import Forbidden, NotFound, Unauthenticated
from sandboxer.kernel.tasks import own_tasks
from sandboxer.kernel.values import brief_value_class
from sandboxer.wiring import Platform
from sandboxer.work.services.domains import WELL_KNOWN

log = logging.getLogger(__name__)
SWEEP_S = 1.0
REMEMBERED_S = 1.0
_MOST = 4096
_COOKIE = COOKIE.encode() + b"="
_HOST_COOKIE = b"__Host-" + _COOKIE
_COOKIES = (_HOST_COOKIE, _COOKIE)
_QUERY = QUERY.encode() + b"="
_PROOF = WELL_KNOWN.encode()
_SESSION, _KEY = HEADER.encode(), b"sbx-pk-"
_OF_SESSIONS = frozenset({b"authorization", b"sign-in-with-x"})


@brief_value_class
class _Known:
    way: Way
    until: float
    stands: Standing | None
    again: Again


class HostDoor:
    def __init__(
        self,
        ports: Ports,
        domain: str,
        owners: Owners,
        tokens: SandboxTokens,
        visitor_limits: VisitorLimits,
    ) -> None:
        self._ports = ports
        self._domain = domain
        self._owners = owners
        self._tokens = tokens
        self._visitor_limits = visitor_limits
        self._known: dict[tuple[bytes, bytes | None], _Known] = {}
        self._version = ports.previews.version

    def is_mine(self, data: bytes) -> bool:
        return True

    def glance(self, head: RequestHead) -> Admission | None:
        if self._version != self._ports.previews.version:
            self._known.clear()
            self._version = self._ports.previews.version
            return None
        if PREVIEW_HEADER in head.judged or _QUERY in head.target or head.target == _PROOF:
            return None
        known = self._known.get((head.host, None)) or self._known.get((head.host, _cookie(head)))
        if known is None or known.until < time.monotonic():
            return None
        _hide_credentials(head)
        return Admission(known.way, head.target, _other_cookies(head), None, known.stands, known.again)

    async def admit(self, head: RequestHead, peer: Peer) -> Admission | bytes:
        _hide_credentials(head)
        with self._visitor_limits.counting_refusals(head, peer):
            return await self._admit(head, peer)

    async def _admit(self, head: RequestHead, peer: Peer) -> Admission | bytes:
        name = without_port(head.host.decode("latin-1"))
        if (target := await self._find(name)) is None:
            if is_ours(name, self._domain):
                raise NotFound(what="service", id=name, hint="Check the name in the address.")
            self._visitor_limits.count_refusal(head, peer)
            return answers.misdirected(name)
        if target.is_over:
            return answers.not_running(target.sandbox_id)
        if head.target == _PROOF and (proof := self._ports.targets.proof_of(name)) is not None:
            return answers.plain(proof)
        clean, token = without_token(head.target)
        if target.is_public:
            await self._owners(target.account)
            again = partial(self._ports.by_name, name, self._domain)
            return self._remember(head, target, None, partial(self._owners, target.account), again)
        if given := head.values(PREVIEW_HEADER):
            preview, _ = await self._by_link(given[0].decode("latin-1"), target)
            return self._opened(head, target, preview, clean)
        if token is not None:
            return await self._by_address(head, peer, target, clean, token)
        if (cookie := _cookie(head, (_cookie_of(peer.scheme(head)),))) is None:
            if target.takes_traffic:
                return await self._by_traffic(head, peer, target, clean)
            raise private()
        preview = await self._ports.previews.open_by_cookie(
            cookie.decode("latin-1"), target.sandbox_id, target.port
        )
        await self._owners(target.account)
        opened = widened(target, preview)
        renewed = partial(self._ports.renewed, opened)
        return self._remember(head, opened, cookie, self._standing(preview), renewed)

    async def _by_address(
        self, head: RequestHead, peer: Peer, target: Target, clean: bytes, token: str
    ) -> Admission | bytes:
        preview, cookie = await self._by_link(token, target)
        if head.method not in (b"GET", b"HEAD") or head.is_websocket:
            return self._opened(head, target, preview, clean)
        return answers.redirect(clean, _set_cookie(preview, cookie, peer.scheme(head)))

    async def _by_traffic(self, head: RequestHead, peer: Peer, target: Target, clean: bytes) -> Admission:
        given = head.values(TRAFFIC_HEADER)

        async def stands() -> None:
            await self._owners(target.account)
            await self._tokens.authenticate(target.sandbox_id + TRAFFIC, given[0].decode("latin-1"))

        try:
            if given:
                await stands()
        except Unauthenticated:
            self._visitor_limits.count_refusal(head, peer)
            given = ()
        if not given:
            raise Forbidden(
                why="the ports of this sandbox are closed to strangers",
                reason="traffic_token_needed",
                hint=f"Send its traffic access token in the header {TRAFFIC_HEADER.decode()}.",
            )
        again = partial(self._ports.renewed, target)
        return Admission(self._way(head, target), clean, _other_cookies(head), None, stands, again)

    async def _by_link(self, token: str, target: Target) -> tuple[Preview, str]:
        found = await self._ports.previews.open_by_link(token, target.sandbox_id, target.port)
        await self._owners(target.account)
        return found

    async def _find(self, name: str) -> Target | None:
        """Returns None for a name that is not ours. Raises NotFound for a service's name, never for a
        sandbox's: names with an id get the same answer whether there is such a sandbox or not.
        """
        try:
            return await self._ports.by_name(name, self._domain)
        except NotFound:
            if (address := read_host(name, self._domain)) is None:
                raise
            return closed(address)

    def _opened(self, head: RequestHead, target: Target, preview: Preview, clean: bytes) -> Admission:
        opened = widened(target, preview)
        again = partial(self._ports.renewed, opened)
        return Admission(
            self._way(head, opened), clean, _other_cookies(head), None, self._standing(preview), again
        )

    def _standing(self, preview: Preview) -> Standing:
        async def stands() -> None:
            await self._owners(preview.account)
            await self._ports.previews.demand(preview)

        return stands

    def _remember(
        self, head: RequestHead, target: Target, cookie: bytes | None, stands: Standing, again: Again
    ) -> Admission:
        way = self._way(head, target)
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[head.host, cookie] = _Known(way, time.monotonic() + REMEMBERED_S, stands, again)
        return Admission(way, without_token(head.target)[0], _other_cookies(head), None, stands, again)

    def _way(self, head: RequestHead, target: Target) -> Way:
        name = without_port(head.host.decode("latin-1"))
        origin = Origin.SHARED if is_ours(name, self._domain) else Origin.OWN
        return Way(target, self._ports.passages.of(target.sandbox_id), origin=origin)


def private() -> Unauthenticated:
    return Unauthenticated(
        why="this port is private, or there is no such sandbox",
        reason="missing",
        hint="Open it by a preview link (POST /v1/sandboxes/{id}/previews), or call it signed, by path.",
    )


def without_token(target: bytes) -> tuple[bytes, str | None]:
    """Returns the target as the program inside sees it, and the token that was in it."""
    if _QUERY not in target:
        return target, None
    path, _, query = target.partition(b"?")
    parts = query.split(b"&")
    tokens = [part[len(_QUERY) :] for part in parts if part.startswith(_QUERY)]
    kept = b"&".join(part for part in parts if not part.startswith(_QUERY))
    clean = path + b"?" + kept if kept else path
    # `//evil.example` as a Location would lead to another site, and browsers read `\\` as `/`.
    clean = b"/" + clean.lstrip(b"/\\")
    return clean, unquote(tokens[0].decode("latin-1")) if tokens else None


def _cookie_of(scheme: bytes) -> bytes:
    """Returns the name of our cookie. With TLS it has the prefix that keeps neighbours below the same domain
    from setting one for our visitors; browsers accept that prefix with TLS only.
    """
    return _HOST_COOKIE if scheme == b"https" else _COOKIE


def _hide_credentials(head: RequestHead) -> None:
    """Removes a signature, session token or bearer token that was sent to the wrong host: the program inside
    could replay it.
    """
    lines = [(line[: line.find(b":")].lower(), line) for line in head.lines]
    given = b"".join(line for name, line in lines if name == b"authorization")
    if _KEY in given:
        hidden = CREDENTIALS
    elif _SESSION in given or holds_token(given) or any(name == b"sign-in-with-x" for name, _ in lines):
        hidden = _OF_SESSIONS
    else:
        return
    head.lines[:] = [line for line in head.lines if line[: line.find(b":")].lower() not in hidden]


def _cookie(head: RequestHead, names: Sequence[bytes] = _COOKIES) -> bytes | None:
    parts = [
        part.strip(b" ") for value in head.values(b"cookie") if _COOKIE in value for part in value.split(b";")
    ]
    for name in names:
        for part in parts:
            if part.startswith(name):
                return part[len(name) :]
    return None


def _other_cookies(head: RequestHead) -> list[bytes]:
    """Returns the cookie lines without ours."""
    if not (given := head.values(b"cookie")):
        return []
    lines = []
    for value in given:
        if _COOKIE in value:
            parts = (part.strip(b" ") for part in value.split(b";"))
            value = b"; ".join(part for part in parts if not part.startswith(_COOKIES))
        if value:
            lines.append(b"Cookie: " + value + b"\r\n")
    return lines


def _set_cookie(preview: Preview, token: str, scheme: bytes) -> str:
    parts = [_cookie_of(scheme).decode() + token, "Path=/", "HttpOnly", "SameSite=Lax"]
    if preview.expires_at is not None:
        parts.append("Expires=" + preview.expires_at.strftime("%a, %d %b %Y %H:%M:%S GMT"))
    if scheme == b"https":
        parts.append("Secure")
    return "; ".join(parts)


@asynccontextmanager
async def open_proxy(platform: Platform, *, patience: Patience | None = None) -> AsyncIterator[Proxy]:
    """Opens what connections to ports share, whichever listener they come from."""
    ports = platform.access.ports
    front = (
        platform.front
        if patience is None
        else Front(platform.front.bounds, platform.trusted_proxies, patience, platform.budget.turns)
    )
    async with own_tasks() as tasks:
        pool = Pool(ports.passages, tasks)
        proxy = Proxy(
            pool=pool,
            targets=ports.targets,
            tasks=tasks,
            trusted=platform.trusted_proxies,
            visitor_limits=VisitorLimits(platform.limiter, platform.limits, platform.trusted_proxies),
            connections=set(),
            front=front,
        )
        tasks.start(_sweep(proxy), name="what connections were opened by")
        tasks.start(front.watch(), name="slow connections")
        try:
            yield proxy
        finally:
            for connection in list(proxy.connections):
                connection.shut_down()
            pool.close()


@asynccontextmanager
async def listen_for_hosts(
    platform: Platform, proxy: Proxy, listening: socket.socket
) -> AsyncIterator[Where]:
    """Serves `{port}-{id}.{domain}` and the other names on a socket that is already bound."""
    settings = platform.settings
    may_act = owners(platform.authorities, platform.clock)
    door = HostDoor(
        platform.access.ports, settings.proxy_domain, may_act, platform.sandbox_tokens, proxy.visitor_limits
    )
    acceptor = Acceptor(listening, proxy.front, lambda slot: ClientConnection(proxy, door, slot))
    https_port = settings.proxy_https_port
    where = Where(
        domain=settings.proxy_domain,
        scheme="http" if https_port is None else "https",
        port=listening.getsockname()[1] if https_port is None else https_port,
    )
    platform.access.ports.where = where
    try:
        yield where
    finally:
        platform.access.ports.where = None
        acceptor.close()
        await acceptor.wait_closed()


async def _sweep(proxy: Proxy) -> None:
    loop = asyncio.get_running_loop()
    while True:
        await asyncio.sleep(SWEEP_S)
        for connection in list(proxy.connections):
            try:
                await connection.look()
            except Exception:
                # An outermost loop: a database that is away for a moment must not end the listener.
                log.exception("could not look after a connection")
        proxy.pool.sweep(loop.time())
