"""An account's named secrets: stored, listed by name, removed, and opened for whoever acts on its behalf.

Plain functions check names and sizes. Values are stored sealed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Integer,
    LargeBinary,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)

from sandboxer.accounts.storage import demand_funds_for_rows
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, InvalidRequest, NotFound, TooLarge
from sandboxer.observe.events import record
from sandboxer.store.engine import Store
from sandboxer.store.metadata import UtcDateTime, metadata

# A name serves both as a variable and as a file name.
NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
MAX_VALUE_BYTES = 64 * 1024
MAX_OF_ACCOUNT = 256
MAX_IN_SANDBOX = 64
# The most that all secrets of a sandbox may have together: an environment has to fit into one execve.
MAX_IN_SANDBOX_BYTES = 512 * 1024
_NAME = re.compile(NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretInfo:
    """All that is ever shown of a secret."""

    name: str
    size_bytes: int
    created_at: datetime
    updated_at: datetime


secrets = Table(
    "secrets",
    metadata,
    Column("account", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("updated_at", UtcDateTime, nullable=False),
)
_t = secrets.c
# Copies, so that a file and the environment always agree; a rotated secret is injected again.
sandbox_secrets = Table(
    "sandbox_secrets",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    Column("in_env", Boolean, nullable=False),
    Column("in_file", Boolean, nullable=False),
    Column("injected_at", UtcDateTime, nullable=False),
)


class Vault:
    def __init__(self, store: Store, clock: Clock, seal: Seal, *, is_charged: bool = False) -> None:
        """`is_charged` means that accounts pay on this platform, so an account that has not paid keeps
        little.
        """
        self._is_charged = is_charged
        self._store = store
        self._clock = clock
        self._seal = seal

    async def put(self, name: str, value: str, caller: Caller) -> SecretInfo:
        """Stores a secret, or replaces the one of this name. Raises Conflict, or InsufficientCredit, for too
        many.
        """
        check_name(name)
        data = check_value(name, value)
        account, now = caller.account, self._clock.now()
        sealed = self._seal.close(data, context=_context(account, name))
        changed = {"sealed": sealed, "size_bytes": len(data), "updated_at": now}

        def write(conn: Connection) -> SecretInfo:
            known = _load(conn, account, [name])
            if self._is_charged and account != OWNER_ACCOUNT:
                count, size = _others(conn, account, name)
                demand_funds_for_rows(
                    conn, account, what="secrets", count=count + 1, size_bytes=size + len(data), now=now
                )
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
        """Returns the secrets by name."""
        return await self._store.read(lambda conn: _load(conn, caller.account, None))

    async def get(self, name: str, caller: Caller) -> SecretInfo:
        """Returns one secret's description. Raises NotFound."""
        found = await self._store.read(lambda conn: _load(conn, caller.account, [name]))
        if not found:
            raise NotFound(what="secret", id=name)
        return found[0]

    async def remove(self, name: str, caller: Caller) -> None:
        """Removes a secret. Injected copies stay until they are wiped. Raises NotFound."""
        now = self._clock.now()

        def write(conn: Connection) -> None:
            gone = conn.execute(delete(secrets).where(_t.account == caller.account, _t.name == name))
            if gone.rowcount == 0:
                raise NotFound(what="secret", id=name)
            _tell(conn, caller, "secret.removed", name, now)

        await self._store.write(write)

    async def value_of(self, account: str, name: str) -> str | None:
        """Returns the value for use outside every sandbox (egress); None if there is no such secret."""
        return (await self.values_of(account, [name])).get(name)

    async def values_of(self, account: str, names: Iterable[str]) -> dict[str, str]:
        """Returns the values of those names that exist."""
        wanted = list(names)
        query = select(_t.name, _t.sealed).where(_t.account == account, _t.name.in_(wanted))
        rows = await self._store.read(lambda conn: list(conn.execute(query)))
        return {
            row.name: self._seal.open(row.sealed, context=_context(account, row.name)).decode()
            for row in rows
        }

    async def demand(self, account: str, names: Iterable[str]) -> dict[str, str]:
        """Returns the values of all these names. Raises NotFound for the first that is missing."""
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


def _others(conn: Connection, account: str, name: str) -> tuple[int, int]:
    """Returns how many secrets it has beside this one, and how large they are together."""
    query = select(func.count(), func.coalesce(func.sum(_t.size_bytes), 0))
    count, size = conn.execute(query.where(_t.account == account, _t.name != name)).one()
    return int(count), int(size)


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


def check_name(name: str) -> None:
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(
            field="name", why="a secret's name has letters, digits and _, no digit first, at most 128"
        )


def check_value(name: str, value: str) -> bytes:
    """Returns the bytes of the value. Errors name the secret and never show it."""
    try:
        data = value.encode()
    except UnicodeEncodeError:
        raise InvalidRequest(field=name, why="the value is not text that UTF-8 can hold") from None
    if not data:
        raise InvalidRequest(field=name, why="the value is empty")
    if b"\0" in data:
        raise InvalidRequest(field=name, why="the value holds a NUL, which no variable can")
    if len(data) > MAX_VALUE_BYTES:
        raise TooLarge(what=f"the value of {name}", limit=f"{MAX_VALUE_BYTES} bytes")
    return data


def check_sum(sizes: Iterable[int]) -> None:
    """Raises an error if a sandbox may not hold secrets of these sizes together."""
    held = list(sizes)
    if len(held) > MAX_IN_SANDBOX:
        raise Conflict(why=f"a sandbox holds at most {MAX_IN_SANDBOX} secrets", hint="Wipe what is not used.")
    if sum(held) > MAX_IN_SANDBOX_BYTES:
        raise TooLarge(what="all secrets of a sandbox together", limit=f"{MAX_IN_SANDBOX_BYTES} bytes")
