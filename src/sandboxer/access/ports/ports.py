"""Ports, as the edges use them: which port a name stands for, who may use it, and how to connect to it.

Preview links: creating, listing and revoking them, and deciding whether one opens a port.

The previews of a sandbox are cached once they were read: one server owns one database, and a page with a
hundred pictures must not cause a hundred reads. `version` changes with every write, so that other caches can
follow.

A private port is opened without a key by a token in a link, and by the cookie that a browser gets for it.
Both name a preview and carry a MAC over everything that the preview is for. Whether the preview is still
valid is looked up each time, so that a revoked one opens nothing.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from sandboxer.access.ports.targets import ASLEEP, GONE, Passages, Target, Targets, Waker
from sandboxer.identity.keys import Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound, Unauthenticated, or_not_found
from sandboxer.kernel.values import brief_value_class, is_sandbox_id, new_id, value_class
from sandboxer.observe.events import record
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.exposure import Exposure, Inspect, before_opening
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.records import AtEnd
from sandboxer.store.engine import Store
from sandboxer.store.metadata import UtcDateTime, metadata, nullable, required
from sandboxer.store.repository import Also

MAX_STANDING = 64
# The newest expired previews are kept, so that the visitor of an old link learns that it has expired.
MAX_OVER = 64
_REMEMBERED = 10_000
# The port of a preview that is for all of them.
EVERY_PORT = 0
_TOKEN = re.compile(r"(prv_[0-9a-hjkmnp-tv-z]{26})\.([A-Za-z0-9_-]{43})")
COOKIE = "sandboxer_preview"
QUERY = "sandboxer_token"
# What a token is for; one that was made for a link is no cookie.
_LINK, _COOKIE = "link", "cookie"


@value_class
class Preview:
    id: str
    sandbox_id: str
    account: str
    port: int
    # Open to everyone, no token needed.
    is_public: bool
    # Its link works once; whoever used it continues with the cookie.
    is_one_time: bool
    wakes: bool
    hold_s: int
    created_at: datetime
    # None: valid until revoked.
    expires_at: datetime | None
    used_at: datetime | None = None
    revoked_at: datetime | None = None
    # What programs inside see as the host of requests, with `${PORT}` for the port; None: what visitors said.
    host: str | None = None

    def stands(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@value_class
class NewPreview:
    preview: Preview
    # None: it is public, no token is needed.
    token: str | None
    # None: nobody looked.
    exposure: Exposure | None


previews = Table(
    "previews",
    metadata,
    Column("id", Text, primary_key=True),
    *required(Text, "sandbox_id", "account"),
    Column("port", Integer, nullable=False),
    *required(Boolean, "is_public", "is_one_time", "wakes"),
    Column("hold_s", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    *nullable(UtcDateTime, "expires_at", "used_at", "revoked_at"),
    Column("host", Text, nullable=True),
    Index(None, "sandbox_id", "created_at"),
)
_t, _INSERT = previews.c, insert(previews).inline()


@dataclass(slots=True, eq=False, repr=False)
class Previews:
    store: Store
    clock: Clock
    sandboxes: SandboxDependencies
    minter: Minter
    # Returns where requests for a port go now: a preview follows its port through redeploys.
    present_port: Callable[[str, int], int]
    version: int = 0
    _known: OrderedDict[str, tuple[Preview, ...]] = field(default_factory=OrderedDict)

    async def create(
        self,
        sandbox_id: str,
        caller: Caller,
        *,
        port: int,
        ttl: timedelta | None,
        is_public: bool = False,
        is_one_time: bool = False,
        wakes: bool = True,
        hold_s: int = 0,
        inspect: Inspect | None = None,
    ) -> NewPreview:
        """Opens a port, unless `inspect` refuses that for what was found."""
        sandbox = await self.sandboxes.visible(sandbox_id, caller)
        exposure = await before_opening(self.sandboxes, sandbox_id, caller, inspect, is_public=is_public)
        now = self.clock.now()
        made = Preview(
            id=new_id("prv"),
            sandbox_id=sandbox_id,
            account=sandbox.account,
            port=port,
            is_public=is_public,
            is_one_time=is_one_time,
            wakes=wakes,
            hold_s=hold_s,
            created_at=now,
            expires_at=None if ttl is None else now + ttl,
        )

        def write(conn: Connection) -> None:
            known = _load(conn, sandbox_id)
            over = [one.id for one in known if not one.stands(now)][MAX_OVER:]
            if over:
                conn.execute(delete(previews).where(_t.id.in_(over)))
            if sum(one.stands(now) for one in known) >= MAX_STANDING:
                raise Conflict(
                    why=f"a sandbox has at most {MAX_STANDING} previews",
                    hint=f"Revoke one that is not used: GET /v1/sandboxes/{sandbox_id}/previews.",
                )
            conn.execute(_INSERT, asdict(made))
            _tell(conn, made, "preview.created", caller, now)

        await self.store.write(write)
        self._forget(sandbox_id)
        token = None if is_public else self.minter.token(made, _LINK)
        return NewPreview(preview=made, token=token, exposure=exposure)

    def opening(
        self, caller: Caller, *, is_public: bool, host: str | None = None, also: Also | None = None
    ) -> Also:
        """Returns what opens every port of a new sandbox in the transaction that records it, after `also`: to
        everyone, or to who holds a token of its traffic. Programs inside see requests as for `host`.
        """
        now = self.clock.now()

        def write(conn: Connection, sandbox_id: str) -> None:
            if also is not None:
                also(conn, sandbox_id)
            made = Preview(
                id=new_id("prv"),
                sandbox_id=sandbox_id,
                account=caller.account,
                port=EVERY_PORT,
                is_public=is_public,
                is_one_time=False,
                wakes=False,
                hold_s=0,
                created_at=now,
                expires_at=None,
                host=host,
            )
            conn.execute(_INSERT, asdict(made))
            _tell(conn, made, "preview.created", caller, now)

        return write

    async def of_every_port(self, sandbox_id: str) -> Preview | None:
        """Returns the preview that opens all ports of a sandbox."""
        now = self.clock.now()
        known = await self._of(sandbox_id)
        return next((one for one in known if one.port == EVERY_PORT and one.stands(now)), None)

    async def list(self, sandbox_id: str, caller: Caller) -> Sequence[Preview]:
        """Returns the valid previews, newest first."""
        await self.sandboxes.visible(sandbox_id, caller)
        now = self.clock.now()
        return [one for one in await self._of(sandbox_id) if one.stands(now)]

    async def revoke(self, sandbox_id: str, preview_id: str, caller: Caller) -> None:
        """Revokes it. One that is revoked already counts as success."""
        await self.sandboxes.visible(sandbox_id, caller)
        now = self.clock.now()

        def write(conn: Connection) -> None:
            found = or_not_found(
                next((one for one in _load(conn, sandbox_id) if one.id == preview_id), None),
                what="preview",
                id=preview_id,
            )
            if found.revoked_at is None:
                conn.execute(update(previews).where(_t.id == preview_id).values(revoked_at=now))
                _tell(conn, found, "preview.revoked", caller, now)

        await self.store.write(write)
        self._forget(sandbox_id)

    async def public_of(self, sandbox_id: str, port: int) -> Preview | None:
        """Returns the preview that opens this port to everyone."""
        now = self.clock.now()
        known = await self._of(sandbox_id)
        standing = (one for one in known if one.is_public and self._is_for(one, port))
        return next((one for one in standing if one.stands(now)), None)

    async def open_by_link(self, token: str, sandbox_id: str, port: int) -> tuple[Preview, str]:
        """Returns the preview that a link's token opens this port with, and a cookie for further requests.

        Raises Unauthenticated.
        """
        found = await self._find(token, sandbox_id, port)
        if not self.minter.opens(token, found, _LINK):
            raise _refused("unknown_token", "this link opens nothing here")
        if found.is_one_time:
            found = await self._use_up(found)
        return found, self.minter.token(found, _COOKIE)

    async def open_by_cookie(self, token: str, sandbox_id: str, port: int) -> Preview:
        """Returns the preview of a cookie. Raises Unauthenticated."""
        found = await self._find(token, sandbox_id, port)
        if not self.minter.opens(token, found, _COOKIE):
            raise _refused("unknown_token", "this cookie opens nothing here")
        return found

    async def demand(self, preview: Preview) -> None:
        """Raises Unauthenticated if the preview was revoked or has expired."""
        now = self.clock.now()
        known = await self._of(preview.sandbox_id)
        if not any(one.id == preview.id and one.stands(now) for one in known):
            raise _refused("revoked", "this preview is over")

    async def _find(self, token: str, sandbox_id: str, port: int) -> Preview:
        preview_id = preview_id_of(token)
        for one in await self._of(sandbox_id) if preview_id is not None else ():
            if one.id == preview_id and self._is_for(one, port) and not one.is_public:
                if one.stands(self.clock.now()):
                    return one
                reason = "expired" if one.revoked_at is None else "revoked"
                raise _refused(reason, f"this preview is {reason}")
        raise _refused("unknown_token", "this token opens nothing here")

    def _is_for(self, preview: Preview, port: int) -> bool:
        return preview.port == EVERY_PORT or self.present_port(preview.sandbox_id, preview.port) == port

    async def _use_up(self, preview: Preview) -> Preview:
        now = self.clock.now()

        def write(conn: Connection) -> bool:
            unused = update(previews).where(_t.id == preview.id, _t.used_at.is_(None))
            return conn.execute(unused.values(used_at=now)).rowcount == 1

        if preview.used_at is not None or not await self.store.write(write):
            raise _refused("used", "this link works once, and was used")
        self._forget(preview.sandbox_id)
        return replace(preview, used_at=now)

    async def _of(self, sandbox_id: str) -> tuple[Preview, ...]:
        known = self._known.get(sandbox_id)
        if known is None:
            version = self.version
            known = await self.store.read(lambda conn: _load(conn, sandbox_id))
            if version == self.version:
                self._known[sandbox_id] = known
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
        return known

    def _forget(self, sandbox_id: str) -> None:
        self._known.pop(sandbox_id, None)
        self.version += 1


def _load(conn: Connection, sandbox_id: str) -> tuple[Preview, ...]:
    query = select(previews).where(_t.sandbox_id == sandbox_id).order_by(_t.created_at.desc(), _t.id)
    return tuple(Preview(**row._mapping) for row in conn.execute(query))


def _tell(conn: Connection, preview: Preview, kind: str, caller: Caller, now: datetime) -> None:
    data = {"preview_id": preview.id, "port": preview.port, "public": preview.is_public}
    record(
        conn,
        subject=preview.sandbox_id,
        kind=kind,
        actor=caller.public_key,
        reason="asked",
        at=now,
        data=data,
    )


def _refused(reason: str, why: str) -> Unauthenticated:
    return Unauthenticated(
        why=why,
        reason=reason,
        hint="Ask whoever owns the sandbox for a new link (POST /v1/sandboxes/{id}/previews).",
    )


class Minter:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def opens(self, token: str, preview: Preview, use: str) -> bool:
        return hmac.compare_digest(token.encode(), self.token(preview, use).encode())

    def token(self, preview: Preview, use: str) -> str:
        """Returns the token for one use of the preview: `_LINK` or `_COOKIE`."""
        until = "" if preview.expires_at is None else str(int(preview.expires_at.timestamp()))
        said = "\n".join((use, preview.id, preview.account, preview.sandbox_id, str(preview.port), until))
        mac = hmac.new(self._key, said.encode(), hashlib.sha256).digest()
        return f"{preview.id}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def preview_id_of(token: str) -> str | None:
    """Returns the preview that a token claims to be for; None if it is no token."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else match[1]


# No leading zero, so that one port has one name.
_LABEL = re.compile(r"([1-9][0-9]{0,4})-sbx[-_]([0-9a-z]{26})")
_PATH = re.compile(rb"/v1/sandboxes/(sbx_[0-9a-z]{26})/ports/([1-9][0-9]{0,4})(?=[/?]|$)")
MAX_PORT = 65535


@brief_value_class
class PortAddress:
    sandbox_id: str
    port: int


def without_port(host: str) -> str:
    """Returns the name in a Host header, in lower case, without port and without a trailing dot."""
    name = host if host.startswith("[") else host.partition(":")[0]
    return name.lower().removesuffix(".")


def is_ours(name: str, domain: str) -> bool:
    """Tells whether the name is a direct child of the proxy's domain."""
    label, dot, rest = name.partition(".")
    return bool(dot and label) and rest == domain


def read_host(name: str, domain: str) -> PortAddress | None:
    """Returns the port that a name of ours states; None if the name does not state one."""
    if not is_ours(name, domain):
        return None
    match = _LABEL.fullmatch(name.partition(".")[0])
    if match is None:
        return None
    return _address("sbx_" + match[2], int(match[1]))


def read_path(target: bytes) -> tuple[PortAddress, bytes, bytes] | None:
    """Returns the port that a path states, the prefix before it, and the rest for the program inside."""
    match = _PATH.match(target)
    if match is None:
        return None
    address = _address(match[1].decode(), int(match[2]))
    rest = target[match.end() :]
    return None if address is None else (address, match[0], rest if rest[:1] == b"/" else b"/" + rest)


def host_of(address: PortAddress, domain: str) -> str:
    return f"{address.port}-{address.sandbox_id.replace('_', '-')}.{domain}"


def _address(sandbox_id: str, port: int) -> PortAddress | None:
    return PortAddress(sandbox_id, port) if port <= MAX_PORT and is_sandbox_id(sandbox_id) else None


@brief_value_class
class Where:
    """How the proxy is reached from outside."""

    domain: str
    scheme: str
    port: int

    def url(self, host: str) -> str:
        default = {"http": 80, "https": 443}[self.scheme]
        return f"{self.scheme}://{host}" + ("" if self.port == default else f":{self.port}")


class Ports:
    def __init__(
        self, sandboxes: SandboxDependencies, store: Store, clock: Clock, seal: Seal, targets: Targets
    ) -> None:
        self._sandboxes = sandboxes
        self.targets = targets
        self.previews = Previews(
            store, clock, sandboxes, Minter(seal.derive("previews of ports")), self.targets.present_port
        )
        self.waker = Waker(sandboxes, lambda: self.targets)
        self.passages = Passages(sandboxes, self.waker)
        # Set by the edge while it listens; None otherwise.
        self.where: Where | None = None

    async def by_name(self, name: str, domain: str) -> Target | None:
        """Returns what a host name stands for, or None if it is not ours. Raises NotFound."""
        address = read_host(name, domain)
        return await self.targets.by_domain(name) if address is None else await self.by_address(address)

    async def by_address(self, address: PortAddress) -> Target:
        """Returns the port's target. Raises NotFound."""
        sandbox = await self._sandboxes.repository.find(address.sandbox_id)
        is_gone = sandbox is None or sandbox.state in GONE
        every = None if sandbox is None else await self.previews.of_every_port(address.sandbox_id)
        if sandbox is None or (is_gone and every is None):
            raise NotFound(what="sandbox", id=address.sandbox_id)
        port = self.targets.present_port(address.sandbox_id, address.port)
        closed = Target(address.sandbox_id, port, sandbox.account, is_public=False, wakes=False)
        if every is not None:
            # One that was to sleep until it is used wakes for who may use its ports.
            wakes = sandbox.at_end is AtEnd.SLEEP
            is_asleep = sandbox.state in ASLEEP and not (wakes and sandbox.state is State.STOPPED)
            host = None if every.host is None else every.host.replace("${PORT}", str(address.port))
            closed = replace(closed, takes_traffic=True, wakes=wakes, is_over=is_gone or is_asleep, host=host)
        opened = await self.previews.public_of(address.sandbox_id, port)
        return closed if opened is None else replace(widened(closed, opened), is_public=True)

    async def for_caller(self, address: PortAddress, caller: Caller) -> Target:
        """Returns the target for a caller who signed. It wakes nothing, since such a caller can thaw the
        sandbox. Raises NotFound.
        """
        sandbox = await self._sandboxes.visible(address.sandbox_id, caller)
        port = self.targets.present_port(address.sandbox_id, address.port)
        return Target(address.sandbox_id, port, sandbox.account, is_public=False, wakes=False)

    async def renewed(self, target: Target) -> Target:
        """Returns the same target with its present port, which a redeploy may have changed."""
        return replace(target, port=self.targets.present_port(target.sandbox_id, target.port))

    def url(self, preview: Preview, token: str | None = None) -> str | None:
        """Returns the URL of a preview; None if this server has no proxy, or if it is for every port."""
        if self.where is None or preview.port == EVERY_PORT:
            return None
        host = host_of(PortAddress(preview.sandbox_id, preview.port), self.where.domain)
        return self.where.url(host) + ("/" if token is None else f"/?{QUERY}={token}")


def closed(address: PortAddress) -> Target:
    """Returns the target for an address without a sandbox: to a stranger it looks like a private port."""
    return Target(address.sandbox_id, address.port, account="", is_public=False, wakes=False)


def widened(target: Target, preview: Preview) -> Target:
    """Returns the target as the holder of this preview may use it."""
    return replace(
        target, wakes=target.wakes or preview.wakes, hold_s=max(target.hold_s, float(preview.hold_s))
    )
