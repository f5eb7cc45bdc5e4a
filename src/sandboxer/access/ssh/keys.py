"""Public keys that open sandboxes: added, listed, revoked, and asked for at the gateway.

All that stand are in memory: whoever knocks without a key costs no database access.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from sandboxer.access.ssh.public_keys import read_public_key
from sandboxer.access.ssh.tables import ssh_keys
from sandboxer.identity.keys import Caller
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.kernel.ids import new_id
from sandboxer.observe.events import record
from sandboxer.sandboxes.lifecycle import State
from sandboxer.sandboxes.use_cases import SandboxUseCases
from sandboxer.store.engine import Store

MAX_OF_ACCOUNT = 100
_GONE = frozenset({State.EXPIRED, State.DESTROYING, State.DESTROYED})
_t = ssh_keys.c


@dataclass(frozen=True, slots=True, kw_only=True)
class SshKey:
    id: str
    account: str
    created_by: str
    name: str
    sandbox_id: str | None
    algorithm: str
    public_key: str
    fingerprint: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None = None

    def stands(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def caller(self) -> Caller:
        """Whoever comes by this key acts as who added it, in that account's sandboxes only."""
        return Caller(public_key=self.created_by, account=self.account)


class SshKeys:
    def __init__(self, store: Store, clock: Clock, sandboxes: SandboxUseCases) -> None:
        self._store = store
        self._clock = clock
        self._sandboxes = sandboxes
        self._by_id: dict[str, SshKey] = {}
        self._by_fingerprint: dict[str, list[SshKey]] = {}

    async def load(self) -> None:
        """Once, at start."""
        query = select(ssh_keys).where(_t.revoked_at.is_(None))
        for row in await self._store.read(lambda conn: list(conn.execute(query))):
            self._remember(_key(row))

    async def add(
        self,
        caller: Caller,
        *,
        public_key: str,
        name: str | None = None,
        sandbox_id: str | None = None,
        ttl: timedelta | None = None,
    ) -> SshKey:
        """For one sandbox, or all the account has and will have. Raises InvalidRequest, NotFound."""
        read = read_public_key(public_key)
        account = caller.account
        if sandbox_id is not None:
            account = (await self._sandboxes.get(sandbox_id, caller)).account
        now = self._clock.now()
        made = SshKey(
            id=new_id("ssk"),
            account=account,
            created_by=caller.public_key,
            name=name or read.comment or read.algorithm,
            sandbox_id=sandbox_id,
            algorithm=read.algorithm,
            public_key=read.text,
            fingerprint=read.fingerprint,
            created_at=now,
            expires_at=None if ttl is None else now + ttl,
        )
        self._refuse(made, now)

        def write(conn: Connection) -> None:
            conn.execute(insert(ssh_keys), _row(made))
            _tell(conn, made, "ssh_key.added", caller.public_key, now)

        self._remember(made)
        try:
            await self._store.write(write)
        except BaseException:
            self._forget(made)
            raise
        return made

    async def list(self, caller: Caller) -> Sequence[SshKey]:
        """Those that stand, newest first."""
        now = self._clock.now()
        mine = [key for key in self._by_id.values() if key.account == caller.account and key.stands(now)]
        return sorted(mine, key=lambda key: (key.created_at, key.id), reverse=True)

    async def revoke(self, key_id: str, caller: Caller) -> None:
        """Open connections end within a second. Raises NotFound."""
        known = self._by_id.get(key_id)
        if known is None or known.account != caller.account:
            raise NotFound(what="ssh key", id=key_id)
        now = self._clock.now()

        def write(conn: Connection) -> None:
            conn.execute(update(ssh_keys).where(_t.id == key_id).values(revoked_at=now))
            _tell(conn, known, "ssh_key.revoked", caller.public_key, now)

        await self._store.write(write)
        self._forget(known)

    def opening(self, sandbox_id: str, fingerprint: str) -> SshKey | None:
        """The key that opens this sandbox. A sandbox that is not there and one of others look the same."""
        now = self._clock.now()
        for key in self._by_fingerprint.get(fingerprint, ()):
            if key.stands(now) and key.sandbox_id in (None, sandbox_id):
                sandbox = self._sandboxes.room.book.peek(sandbox_id)
                if sandbox is not None and sandbox.account == key.account and sandbox.state not in _GONE:
                    return key
        return None

    def why_shut(self, key: SshKey, sandbox_id: str) -> str | None:
        """Why it does not open any more what it opened; None: it does."""
        known = self._by_id.get(key.id)
        if known is None:
            return "the SSH key was revoked"
        if not known.stands(self._clock.now()):
            return "the SSH key's time is over"
        if self.opening(sandbox_id, known.fingerprint) is None:
            return f"{sandbox_id} is gone"
        return None

    async def tell_of(self, key: SshKey, sandbox_id: str, address: str) -> None:
        """Somebody came in."""
        now = self._clock.now()
        data = {"ssh_key": key.id, "fingerprint": key.fingerprint, "address": address}

        def write(conn: Connection) -> None:
            record(
                conn,
                subject=sandbox_id,
                kind="ssh.connected",
                actor=key.created_by,
                reason="ssh",
                at=now,
                data=data,
            )

        await self._store.write(write)

    def _refuse(self, made: SshKey, now: datetime) -> None:
        mine = [key for key in self._by_id.values() if key.account == made.account and key.stands(now)]
        if any((key.fingerprint, key.sandbox_id) == (made.fingerprint, made.sandbox_id) for key in mine):
            raise Conflict(why="this key stands already", hint="Revoke the old one to change its terms.")
        if len(mine) >= MAX_OF_ACCOUNT:
            raise Conflict(why=f"an account has at most {MAX_OF_ACCOUNT} SSH keys", hint="Revoke one first.")

    def _remember(self, key: SshKey) -> None:
        self._by_id[key.id] = key
        self._by_fingerprint.setdefault(key.fingerprint, []).append(key)

    def _forget(self, key: SshKey) -> None:
        self._by_id.pop(key.id, None)
        same = self._by_fingerprint.get(key.fingerprint, [])
        left = [one for one in same if one.id != key.id]
        if left:
            self._by_fingerprint[key.fingerprint] = left
        else:
            self._by_fingerprint.pop(key.fingerprint, None)


def _key(row: Row[Any]) -> SshKey:
    return SshKey(**row._asdict())


def _row(key: SshKey) -> dict[str, object]:
    return {column.name: getattr(key, column.name) for column in ssh_keys.columns}


def _tell(conn: Connection, key: SshKey, kind: str, actor: str, now: datetime) -> None:
    data = {"ssh_key": key.id, "name": key.name, "fingerprint": key.fingerprint}
    subject = key.sandbox_id or key.account
    record(conn, subject=subject, kind=kind, actor=actor, reason="asked", at=now, data=data)
