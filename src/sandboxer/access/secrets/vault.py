"""The stored secrets: those that an account has named, and the copies that were injected into sandboxes.

Plain functions check names and sizes. Values are stored sealed. Injected secrets are also kept sealed in
memory, so that starting a command reads no database.

Secrets as files are kept in the sandbox's memory (/dev/shm), never on its disk, which is kept and copied.
/run is part of the disk, so /run/secrets is a link into memory; a snapshot contains only the link.
"""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

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
from sandboxer.backends.guest import Command, Exit, FileKind, Guest, whole
from sandboxer.identity.keys import OWNER_ACCOUNT, Caller
from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Broken, Conflict, InvalidRequest, NotFound, PathNotFound, TooLarge
from sandboxer.kernel.values import value_class
from sandboxer.observe.events import record
from sandboxer.sandboxes.lifecycle import FINAL
from sandboxer.sandboxes.records import rows
from sandboxer.store.engine import Store
from sandboxer.store.metadata import UtcDateTime, metadata, required

# A name serves both as a variable and as a file name.
NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
MAX_VALUE_BYTES = 64 * 1024
MAX_OF_ACCOUNT = 256
MAX_IN_SANDBOX = 64
# The most that all secrets of a sandbox may have together: an environment has to fit into one execve.
MAX_IN_SANDBOX_BYTES = 512 * 1024
_NAME = re.compile(NAME)
# How a name begins that has its value in itself.
SEALED = "sealed:"


@value_class
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
    *required(UtcDateTime, "created_at", "updated_at"),
)
_t = secrets.c


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
        sealed = self._seal.close(data, context=f"secret:{account}:{name}")
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
            kind = "secret.replaced" if known else "secret.created"
            _tell(conn, account, kind, caller.public_key, now, name=name)
            return SecretInfo(name=name, size_bytes=len(data), created_at=made, updated_at=now)

        return await self._store.write(write)

    async def list(self, caller: Caller) -> Sequence[SecretInfo]:
        """Returns the secrets by name."""
        return await self._store.read(lambda conn: _load(conn, caller.account, None))

    async def get(self, name: str, caller: Caller) -> SecretInfo:
        """Returns one secret's description. Raises NotFound."""
        if not (found := await self._store.read(lambda conn: _load(conn, caller.account, [name]))):
            raise NotFound(what="secret", id=name)
        return found[0]

    async def remove(self, name: str, caller: Caller) -> None:
        """Removes a secret. Injected copies stay until they are wiped. Raises NotFound."""
        now = self._clock.now()

        def write(conn: Connection) -> None:
            gone = conn.execute(delete(secrets).where(_t.account == caller.account, _t.name == name))
            if gone.rowcount == 0:
                raise NotFound(what="secret", id=name)
            _tell(conn, caller.account, "secret.removed", caller.public_key, now, name=name)

        await self._store.write(write)

    def sealed(self, account: str, value: str) -> str:
        """Returns a value as a name that has it in itself, sealed: for what is said once and kept with a rule
        of egress, and is no secret that the account has named.
        """
        closed = self._seal.close(value.encode(), context=_header(account))
        return SEALED + base64.urlsafe_b64encode(closed).decode()

    async def value_of(self, account: str, name: str) -> str | None:
        """Returns the value for use outside every sandbox (egress); None if there is no such secret."""
        if name.startswith(SEALED):
            try:
                closed = base64.urlsafe_b64decode(name.removeprefix(SEALED))
                return self._seal.open(closed, context=_header(account)).decode()
            except (ValueError, Broken):
                return None
        return (await self.values_of(account, [name])).get(name)

    async def values_of(self, account: str, names: Iterable[str]) -> dict[str, str]:
        """Returns the values of those names that exist."""
        wanted = list(names)
        query = select(_t.name, _t.sealed).where(_t.account == account, _t.name.in_(wanted))
        rows = await self._store.read(lambda conn: list(conn.execute(query)))
        return {
            row.name: self._seal.open(row.sealed, context=f"secret:{account}:{row.name}").decode()
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
        hint = "Remove one first: GET /v1/secrets, then DELETE /v1/secrets/{secret}."
        raise Conflict(why=f"an account has at most {MAX_OF_ACCOUNT} secrets", hint=hint)


def _tell(conn: Connection, subject: str, kind: str, actor: str, at: datetime, **data: object) -> None:
    """Records an event with names only, since events are read by many and kept for long."""
    record(conn, subject=subject, kind=kind, actor=actor, reason="asked", at=at, data=data)


def _header(account: str) -> str:
    return f"header:{account}"


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
        hint = "Wipe what is not used: DELETE /v1/sandboxes/{sandbox_id}/secrets."
        raise Conflict(why=f"a sandbox holds at most {MAX_IN_SANDBOX} secrets", hint=hint)
    if sum(held) > MAX_IN_SANDBOX_BYTES:
        raise TooLarge(what="all secrets of a sandbox together", limit=f"{MAX_IN_SANDBOX_BYTES} bytes")


FOLDER = "/run/secrets"
# The real place of the files: the only memory that every sandbox has mounted.
_MEMORY = "/dev/shm/secrets"
_LINK_S = 10.0
# A folder that somebody made there is replaced only if it is empty.
_MAKE_LINK = f"""
[ "$(readlink {FOLDER})" = {_MEMORY} ] && exit 0
mkdir -p /run && {{ [ ! -d {FOLDER} ] || [ -L {FOLDER} ] || rmdir {FOLDER}; }} && ln -sfn {_MEMORY} {FOLDER}
"""


@value_class
class Injected:
    sandbox_id: str
    name: str
    # Empty: it was wiped, and what ran then may hold it.
    sealed: bytes
    size_bytes: int
    in_env: bool
    in_file: bool
    injected_at: datetime


# Copies, so that a file and the environment always agree; a rotated secret is injected again.
sandbox_secrets = Table(
    "sandbox_secrets",
    metadata,
    Column("sandbox_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("sealed", LargeBinary, nullable=False),
    Column("size_bytes", Integer, nullable=False),
    *required(Boolean, "in_env", "in_file"),
    Column("injected_at", UtcDateTime, nullable=False),
)


class InjectedSecrets:
    def __init__(self, store: Store, seal: Seal) -> None:
        self._store = store
        self._seal = seal
        self._memory: dict[str, dict[str, Injected]] = {}

    async def load(self) -> None:
        """Loads everything once, at the start. Entries of sandboxes that ended meanwhile are dropped."""
        every = select(sandbox_secrets)
        for row in await self._store.read(lambda conn: list(conn.execute(every))):
            self._memory.setdefault(row.sandbox_id, {})[row.name] = Injected(**row._mapping)
        await self.drop(await self._store.read(lambda conn: _ended(conn, list(self._memory))))

    def of(self, sandbox_id: str) -> Sequence[Injected]:
        """By name; without those that were wiped."""
        given = (one for one in self._memory.get(sandbox_id, {}).values() if one.sealed)
        return sorted(given, key=lambda one: one.name)

    def value(self, one: Injected) -> bytes:
        return self._seal.open(one.sealed, context=f"sandbox-secret:{one.sandbox_id}:{one.name}")

    def sealed(self, sandbox_id: str, values: Mapping[str, bytes], **how: Any) -> list[Injected]:
        """Returns rows to write; `how` says env, file and when."""
        return [
            Injected(
                sandbox_id=sandbox_id,
                name=name,
                sealed=self._seal.close(data, context=f"sandbox-secret:{sandbox_id}:{name}"),
                size_bytes=len(data),
                **how,
            )
            for name, data in values.items()
        ]

    async def put(self, sandbox_id: str, rows: Sequence[Injected], *, actor: str, at: datetime) -> None:
        names = [row.name for row in rows]

        def write(conn: Connection) -> None:
            _delete(conn, sandbox_id, names)
            conn.execute(insert(sandbox_secrets), [asdict(row) for row in rows])
            _tell(conn, sandbox_id, "secrets.injected", actor, at, names=names)

        await self._store.write(write)
        self._memory.setdefault(sandbox_id, {}).update({row.name: row for row in rows})

    async def remove(
        self, sandbox_id: str, names: Sequence[str], *, actor: str, at: datetime, is_held: bool = False
    ) -> None:
        """`is_held`: what runs may still hold them, so their names stay until that has ended."""
        known = self._memory.get(sandbox_id, {})
        left = {
            name: replace(known[name], sealed=b"", size_bytes=0, in_env=False, in_file=False)
            for name in names
            if is_held and name in known
        }

        def write(conn: Connection) -> None:
            _delete(conn, sandbox_id, names)
            if left:
                conn.execute(insert(sandbox_secrets), [asdict(one) for one in left.values()])
            _tell(conn, sandbox_id, "secrets.wiped", actor, at, names=list(names))

        await self._store.write(write)
        for name in names:
            known.pop(name, None)
        known.update(left)

    async def forget_wiped(self, sandbox_id: str) -> None:
        """What ran when they were wiped has ended."""
        known = self._memory.get(sandbox_id, {})
        if names := [one.name for one in known.values() if not one.sealed]:
            await self._store.write(lambda conn: _delete(conn, sandbox_id, names))
            for name in names:
                known.pop(name, None)

    def holds(self, sandbox_id: str) -> bool:
        return bool(self._memory.get(sandbox_id))

    async def drop(self, sandbox_ids: Iterable[str]) -> None:
        """Drops all secrets of sandboxes that are gone."""
        if gone := list(sandbox_ids):
            dropped = delete(sandbox_secrets).where(sandbox_secrets.c.sandbox_id.in_(gone))
            await self._store.write(lambda conn: conn.execute(dropped))
        for sandbox_id in gone:
            self._memory.pop(sandbox_id, None)


def _ended(conn: Connection, sandbox_ids: Sequence[str]) -> list[str]:
    records = {sandbox_id: rows.load(conn, sandbox_id) for sandbox_id in sandbox_ids}
    return [one for one, sandbox in records.items() if sandbox is None or sandbox.state in FINAL]


def _delete(conn: Connection, sandbox_id: str, names: Sequence[str]) -> None:
    of = sandbox_secrets.c
    conn.execute(delete(sandbox_secrets).where(of.sandbox_id == sandbox_id, of.name.in_(names)))


async def place(guest: Guest, values: Mapping[str, bytes]) -> None:
    """Writes each secret to a file of its own, readable only by root inside. Raises Conflict if /run/secrets
    is something else.
    """
    await guest.files.mkdir(_MEMORY, mode=0o700)
    for name, data in values.items():
        await guest.files.write(f"{_MEMORY}/{name}", whole(data), mode=0o400)
    if not await _is_linked(guest):
        await _link(guest)


async def unplace(guest: Guest, names: Iterable[str]) -> None:
    """Removes the files. Missing ones count as success."""
    for name in names:
        with suppress(PathNotFound):
            await guest.files.remove(f"{_MEMORY}/{name}")


async def _is_linked(guest: Guest) -> bool:
    try:
        found = await guest.files.stat(FOLDER, follow=False)
    except PathNotFound:
        return False
    return found.kind is FileKind.SYMLINK and found.link_target == _MEMORY


async def _link(guest: Guest) -> None:
    """Makes the link with a command, since the supervisor cannot make links."""
    command = Command(argv=("/bin/sh", "-c", _MAKE_LINK), env={"PATH": "/usr/bin:/bin"}, keep=False)
    code = -1
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINK_S), await guest.run(command) as process:
            async for item in process.output():
                if isinstance(item, Exit):
                    code = item.code
    if code != 0:
        raise Conflict(
            why=f"{FOLDER} in the sandbox could not become a link into memory",
            hint=f"Move away what is in {FOLDER}, or inject as environment.",
        )
