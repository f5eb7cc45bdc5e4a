"""An account's named secrets: put, listed by name, removed, and opened for whoever acts on its behalf."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Connection, delete, func, insert, select, update

from sandboxer.access.secrets.bounds import MAX_OF_ACCOUNT, check_name, check_value
from sandboxer.access.secrets.tables import secrets
from sandboxer.identity.keys import Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.observe.events import record
from sandboxer.store.engine import Store

_t = secrets.c


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretInfo:
    """All that is ever told of a secret."""

    name: str
    size_bytes: int
    created_at: datetime
    updated_at: datetime


class Vault:
    def __init__(self, store: Store, clock: Clock, seal: Seal) -> None:
        self._store = store
        self._clock = clock
        self._seal = seal

    async def put(self, name: str, value: str, caller: Caller) -> SecretInfo:
        """New, or in place of the one of this name."""
        check_name(name)
        data = check_value(name, value)
        account, now = caller.account, self._clock.now()
        sealed = self._seal.close(data, context=_context(account, name))
        changed = {"sealed": sealed, "size_bytes": len(data), "updated_at": now}

        def write(conn: Connection) -> SecretInfo:
            known = _load(conn, account, [name])
            if known:
                conn.execute(update(secrets).where(_t.account == account, _t.name == name).values(changed))
                made = known[0].created_at
            else:
                _refuse_many(conn, account)
                made = now
                conn.execute(insert(secrets), {"account": account, "name": name, "created_at": now} | changed)
            _tell(conn, caller, "secret.replaced" if known else "secret.created", name, now)
            return SecretInfo(name=name, size_bytes=len(data), created_at=made, updated_at=now)

        return await self._store.write(write)

    async def list(self, caller: Caller) -> Sequence[SecretInfo]:
        """By name."""
        return await self._store.read(lambda conn: _load(conn, caller.account, None))

    async def remove(self, name: str, caller: Caller) -> None:
        """What was injected of it stays where it is until wiped there. Raises NotFound."""
        now = self._clock.now()

        def write(conn: Connection) -> None:
            gone = conn.execute(delete(secrets).where(_t.account == caller.account, _t.name == name))
            if gone.rowcount == 0:
                raise NotFound(what="secret", id=name)
            _tell(conn, caller, "secret.removed", name, now)

        await self._store.write(write)

    async def value_of(self, account: str, name: str) -> str | None:
        """For use outside every sandbox (egress); None: there is no such secret."""
        return (await self.values_of(account, [name])).get(name)

    async def values_of(self, account: str, names: Iterable[str]) -> dict[str, str]:
        """Those there are of these names."""
        wanted = list(names)
        query = select(_t.name, _t.sealed).where(_t.account == account, _t.name.in_(wanted))
        rows = await self._store.read(lambda conn: list(conn.execute(query)))
        return {
            row.name: self._seal.open(row.sealed, context=_context(account, row.name)).decode()
            for row in rows
        }

    async def demand(self, account: str, names: Iterable[str]) -> dict[str, str]:
        """All of these. Raises NotFound for the first that is missing."""
        wanted = list(names)
        found = await self.values_of(account, wanted)
        for name in wanted:
            if name not in found:
                raise NotFound(what="secret", id=name, hint=f"Set it first: PUT /v1/secrets/{name}.")
        return found


def _load(conn: Connection, account: str, names: list[str] | None) -> list[SecretInfo]:
    query = select(_t.name, _t.size_bytes, _t.created_at, _t.updated_at).where(_t.account == account)
    if names is not None:
        query = query.where(_t.name.in_(names))
    return [SecretInfo(**row._asdict()) for row in conn.execute(query.order_by(_t.name))]


def _refuse_many(conn: Connection, account: str) -> None:
    count = conn.execute(select(func.count()).select_from(secrets).where(_t.account == account)).scalar_one()
    if count >= MAX_OF_ACCOUNT:
        raise Conflict(why=f"an account has at most {MAX_OF_ACCOUNT} secrets", hint="Remove one first.")


def _tell(conn: Connection, caller: Caller, kind: str, name: str, now: datetime) -> None:
    record(
        conn,
        subject=caller.account,
        kind=kind,
        actor=caller.public_key,
        reason="asked",
        at=now,
        data={"name": name},
    )


def _context(account: str, name: str) -> str:
    return f"secret:{account}:{name}"
