"""Remembers which secrets were injected where. They are kept sealed in memory, so that starting a command
reads no database.

Secrets as files are kept in the sandbox's memory (/dev/shm), never on its disk, which is kept and copied.
/run is part of the disk, so /run/secrets is a link into memory; a snapshot contains only the link.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select

from sandboxer.access.secrets.vault import sandbox_secrets
from sandboxer.backends.guest import Command, Exit, FileKind, Guest
from sandboxer.identity.seal import Seal
from sandboxer.kernel.errors import Conflict, PathNotFound
from sandboxer.observe.events import record
from sandboxer.sandboxes.lifecycle import FINAL
from sandboxer.sandboxes.records import rows
from sandboxer.store.engine import Store

_ALL = select(sandbox_secrets)
FOLDER = "/run/secrets"
# The real place of the files: the only memory that every sandbox has mounted.
_MEMORY = "/dev/shm/secrets"
_LINK_S = 10.0
# A folder that somebody made there is replaced only if it is empty.
_MAKE_LINK = f"""
[ "$(readlink {FOLDER})" = {_MEMORY} ] && exit 0
mkdir -p /run && {{ [ ! -d {FOLDER} ] || [ -L {FOLDER} ] || rmdir {FOLDER}; }} && ln -sfn {_MEMORY} {FOLDER}
"""
_t = sandbox_secrets.c


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    sandbox_id: str
    name: str
    sealed: bytes
    size_bytes: int
    in_env: bool
    in_file: bool
    injected_at: datetime


class InjectedSecrets:
    def __init__(self, store: Store, seal: Seal) -> None:
        self._store = store
        self._seal = seal
        self._memory: dict[str, dict[str, Injected]] = {}

    async def load(self) -> None:
        """Loads everything once, at the start. Entries of sandboxes that ended meanwhile are dropped."""
        rows = await self._store.read(lambda conn: [_injected(row) for row in conn.execute(_ALL)])
        for row in rows:
            self._memory.setdefault(row.sandbox_id, {})[row.name] = row
        await self.drop(await self._store.read(lambda conn: _ended(conn, list(self._memory))))

    def of(self, sandbox_id: str) -> Sequence[Injected]:
        """By name."""
        return sorted(self._memory.get(sandbox_id, {}).values(), key=lambda one: one.name)

    def value(self, one: Injected) -> bytes:
        return self._seal.open(one.sealed, context=_context(one.sandbox_id, one.name))

    def sealed(self, sandbox_id: str, values: Mapping[str, bytes], **how: Any) -> list[Injected]:
        """Returns rows to write; `how` says env, file and when."""
        return [
            Injected(
                sandbox_id=sandbox_id,
                name=name,
                sealed=self._seal.close(data, context=_context(sandbox_id, name)),
                size_bytes=len(data),
                **how,
            )
            for name, data in values.items()
        ]

    async def put(self, sandbox_id: str, rows: Sequence[Injected], *, actor: str, at: datetime) -> None:
        names = [row.name for row in rows]

        def write(conn: Connection) -> None:
            _delete(conn, sandbox_id, names)
            conn.execute(insert(sandbox_secrets), [_row(row) for row in rows])
            _tell(conn, sandbox_id, "secrets.injected", names, actor, at)

        await self._store.write(write)
        self._memory.setdefault(sandbox_id, {}).update({row.name: row for row in rows})

    async def remove(self, sandbox_id: str, names: Sequence[str], *, actor: str, at: datetime) -> None:
        def write(conn: Connection) -> None:
            _delete(conn, sandbox_id, names)
            _tell(conn, sandbox_id, "secrets.wiped", names, actor, at)

        await self._store.write(write)
        left = self._memory.get(sandbox_id, {})
        for name in names:
            left.pop(name, None)

    def holds(self, sandbox_id: str) -> bool:
        return bool(self._memory.get(sandbox_id))

    async def drop(self, sandbox_ids: Iterable[str]) -> None:
        """Drops all secrets of sandboxes that are gone."""
        gone = list(sandbox_ids)
        if gone:
            dropped = delete(sandbox_secrets).where(_t.sandbox_id.in_(gone))
            await self._store.write(lambda conn: conn.execute(dropped))
        for sandbox_id in gone:
            self._memory.pop(sandbox_id, None)


def _ended(conn: Connection, sandbox_ids: Sequence[str]) -> list[str]:
    records = {sandbox_id: rows.load(conn, sandbox_id) for sandbox_id in sandbox_ids}
    return [one for one, sandbox in records.items() if sandbox is None or sandbox.state in FINAL]


def _delete(conn: Connection, sandbox_id: str, names: Sequence[str]) -> None:
    conn.execute(delete(sandbox_secrets).where(_t.sandbox_id == sandbox_id, _t.name.in_(names)))


def _injected(row: Row[Any]) -> Injected:
    return Injected(**row._asdict())


def _row(one: Injected) -> dict[str, object]:
    return {column.name: getattr(one, column.name) for column in sandbox_secrets.columns}


def _tell(
    conn: Connection, sandbox_id: str, kind: str, names: Sequence[str], actor: str, at: datetime
) -> None:
    """Records an event with names only, since events are read by many and kept for long."""
    data = {"names": list(names)}
    record(conn, subject=sandbox_id, kind=kind, actor=actor, reason="asked", at=at, data=data)


def _context(sandbox_id: str, name: str) -> str:
    return f"sandbox-secret:{sandbox_id}:{name}"


async def place(guest: Guest, values: Mapping[str, bytes]) -> None:
    """Writes each secret to a file of its own, readable only by root inside. Raises Conflict if /run/secrets
    is something else.
    """
    await guest.files.mkdir(_MEMORY, mode=0o700)
    for name, data in values.items():
        await guest.files.write(f"{_MEMORY}/{name}", _whole(data), mode=0o400)
    if not await _is_linked(guest):
        await _link(guest)


async def unplace(guest: Guest, names: Iterable[str]) -> None:
    """Removes the files. Missing ones count as success."""
    for name in names:
        try:
            await guest.files.remove(f"{_MEMORY}/{name}")
        except PathNotFound:
            continue


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
    try:
        async with asyncio.timeout(_LINK_S), await guest.run(command) as process:
            async for item in process.output():
                if isinstance(item, Exit):
                    code = item.code
    except TimeoutError:
        pass
    if code != 0:
        raise Conflict(
            why=f"{FOLDER} in the sandbox could not become a link into memory",
            hint=f"Move away what is in {FOLDER}, or inject as environment.",
        )


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
