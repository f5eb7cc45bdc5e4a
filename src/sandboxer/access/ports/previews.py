"""Preview links: creating, listing and revoking them, and deciding whether one opens a port.

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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Index,
    Integer,
    Row,
    Table,
    Text,
    delete,
    insert,
    select,
    update,
)

from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound, Unauthenticated
from sandboxer.kernel.ids import new_id
from sandboxer.observe.events import record
from sandboxer.sandboxes.use_cases.facade import SandboxUseCases
from sandboxer.store.engine import Store
from sandboxer.store.metadata import UtcDateTime, metadata

MAX_STANDING = 64
# The newest expired previews are kept, so that the visitor of an old link learns that it has expired.
MAX_OVER = 64
_REMEMBERED = 10_000
_TOKEN = re.compile(r"(prv_[0-9a-hjkmnp-tv-z]{26})\.([A-Za-z0-9_-]{43})")
COOKIE = "sandboxer_preview"
QUERY = "sandboxer_token"
previews = Table(
    "previews",
    metadata,
    Column("id", Text, primary_key=True),
    Column("sandbox_id", Text, nullable=False),
    Column("account", Text, nullable=False),
    Column("port", Integer, nullable=False),
    Column("is_public", Boolean, nullable=False),
    Column("is_one_time", Boolean, nullable=False),
    Column("wakes", Boolean, nullable=False),
    Column("hold_s", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=True),
    Column("used_at", UtcDateTime, nullable=True),
    Column("revoked_at", UtcDateTime, nullable=True),
    Index(None, "sandbox_id", "created_at"),
)
_t = previews.c


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def stands(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


class Previews:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        sandboxes: SandboxUseCases,
        minter: Minter,
        present_port: Callable[[str, int], int],
    ) -> None:
        self._store = store
        self._clock = clock
        self._sandboxes = sandboxes
        self._minter = minter
        # Returns where requests for a port go now: a preview follows its port through redeploys.
        self._present_port = present_port
        self._known: OrderedDict[str, tuple[Preview, ...]] = OrderedDict()
        self.version = 0

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
        hold_s: int = 10,
    ) -> tuple[Preview, str | None]:
        """Returns the preview and, unless it is public, the token that opens it."""
        sandbox = await self._sandboxes.get(sandbox_id, caller)
        now = self._clock.now()
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
                    why=f"a sandbox has at most {MAX_STANDING} previews", hint="Revoke one that is not used."
                )
            conn.execute(insert(previews), _row(made))
            _tell(conn, made, "preview.created", caller, now)

        await self._store.write(write)
        self._forget(sandbox_id)
        return made, None if is_public else self._minter.link_token(made)

    async def list(self, sandbox_id: str, caller: Caller) -> Sequence[Preview]:
        """Returns the valid previews, newest first."""
        await self._sandboxes.get(sandbox_id, caller)
        now = self._clock.now()
        return [one for one in await self._of(sandbox_id) if one.stands(now)]

    async def revoke(self, sandbox_id: str, preview_id: str, caller: Caller) -> None:
        """Revokes it. One that is revoked already counts as success."""
        await self._sandboxes.get(sandbox_id, caller)
        now = self._clock.now()

        def write(conn: Connection) -> None:
            found = next((one for one in _load(conn, sandbox_id) if one.id == preview_id), None)
            if found is None:
                raise NotFound(what="preview", id=preview_id)
            if found.revoked_at is None:
                conn.execute(update(previews).where(_t.id == preview_id).values(revoked_at=now))
                _tell(conn, found, "preview.revoked", caller, now)

        await self._store.write(write)
        self._forget(sandbox_id)

    async def public_of(self, sandbox_id: str, port: int) -> Preview | None:
        """Returns the preview that opens this port to everyone."""
        now = self._clock.now()
        known = await self._of(sandbox_id)
        standing = (one for one in known if one.is_public and self._is_for(one, port))
        return next((one for one in standing if one.stands(now)), None)

    async def open_by_link(self, token: str, sandbox_id: str, port: int) -> tuple[Preview, str]:
        """Returns the preview that a link's token opens this port with, and a cookie for further requests.

        Raises Unauthenticated.
        """
        found = await self._find(token, sandbox_id, port)
        if not self._minter.is_link_token(token, found):
            raise _refused("unknown_token", "this link opens nothing here")
        if found.is_one_time:
            found = await self._use_up(found)
        return found, self._minter.cookie_token(found)

    async def open_by_cookie(self, token: str, sandbox_id: str, port: int) -> Preview:
        """Returns the preview of a cookie. Raises Unauthenticated."""
        found = await self._find(token, sandbox_id, port)
        if not self._minter.is_cookie_token(token, found):
            raise _refused("unknown_token", "this cookie opens nothing here")
        return found

    async def demand(self, preview: Preview) -> None:
        """Raises Unauthenticated if the preview was revoked or has expired."""
        now = self._clock.now()
        known = await self._of(preview.sandbox_id)
        if not any(one.id == preview.id and one.stands(now) for one in known):
            raise _refused("revoked", "this preview is over")

    async def _find(self, token: str, sandbox_id: str, port: int) -> Preview:
        preview_id = preview_id_of(token)
        for one in await self._of(sandbox_id) if preview_id is not None else ():
            if one.id == preview_id and self._is_for(one, port) and not one.is_public:
                if one.stands(self._clock.now()):
                    return one
                reason = "expired" if one.revoked_at is None else "revoked"
                raise _refused(reason, f"this preview is {reason}")
        raise _refused("unknown_token", "this token opens nothing here")

    def _is_for(self, preview: Preview, port: int) -> bool:
        return self._present_port(preview.sandbox_id, preview.port) == port

    async def _use_up(self, preview: Preview) -> Preview:
        now = self._clock.now()

        def write(conn: Connection) -> bool:
            unused = update(previews).where(_t.id == preview.id, _t.used_at.is_(None))
            return conn.execute(unused.values(used_at=now)).rowcount == 1

        if preview.used_at is not None or not await self._store.write(write):
            raise _refused("used", "this link works once, and was used")
        self._forget(preview.sandbox_id)
        return replace(preview, used_at=now)

    async def _of(self, sandbox_id: str) -> tuple[Preview, ...]:
        known = self._known.get(sandbox_id)
        if known is None:
            version = self.version
            known = await self._store.read(lambda conn: _load(conn, sandbox_id))
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
    return tuple(_preview(row) for row in conn.execute(query))


def _preview(row: Row[Any]) -> Preview:
    return Preview(**row._asdict())


def _row(preview: Preview) -> dict[str, object]:
    return {column.name: getattr(preview, column.name) for column in previews.columns}


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
        why=why, reason=reason, hint="Ask whoever owns the sandbox for a new link (POST …/previews)."
    )


class Minter:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def link_token(self, preview: Preview) -> str:
        return self._token(preview, "link")

    def cookie_token(self, preview: Preview) -> str:
        return self._token(preview, "cookie")

    def is_link_token(self, token: str, preview: Preview) -> bool:
        return hmac.compare_digest(token.encode(), self.link_token(preview).encode())

    def is_cookie_token(self, token: str, preview: Preview) -> bool:
        return hmac.compare_digest(token.encode(), self.cookie_token(preview).encode())

    def _token(self, preview: Preview, use: str) -> str:
        until = "" if preview.expires_at is None else str(int(preview.expires_at.timestamp()))
        said = "\n".join((use, preview.id, preview.account, preview.sandbox_id, str(preview.port), until))
        mac = hmac.new(self._key, said.encode(), hashlib.sha256).digest()
        return f"{preview.id}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


def preview_id_of(token: str) -> str | None:
    """Returns the preview that a token claims to be for; None if it is no token."""
    match = _TOKEN.fullmatch(token)
    return None if match is None else match[1]
