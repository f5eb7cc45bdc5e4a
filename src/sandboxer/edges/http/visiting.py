"""The operator inside what is a tenant's: a row in the audit log before anything is done there.

Asked once, in front of every route whose path names a sandbox, a session, a service, a job, a snapshot, an
image or a volume, so that no route can forget it; routes that name one in their body ask by `note_use`. The
row says what was asked for, not how it ended; the thing's own events tell that. With its own the operator may
do as it likes: a look, and no row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from sqlalchemy import Connection
from starlette.types import Scope

from sandboxer.accounts import audit
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import NotFound
from sandboxer.sandboxes.records import Sandbox
from sandboxer.wiring import Platform

# Also with a line break in it: nothing that a path may hold hides a visit.
_INSIDE = re.compile(
    r"/v1/(?P<noun>sandboxes|sessions|services|jobs|snapshots|images|volumes)/(?P<id>[^/]+)(?P<tail>/.*)?",
    re.DOTALL,
)
_ONE = {
    "sandboxes": "sandbox",
    "sessions": "session",
    "services": "service",
    "jobs": "job",
    "snapshots": "snapshot",
    "images": "image",
    "volumes": "volume",
}
_WORD = re.compile(r"[a-z]+(-[a-z]+)*")
# Paths and queries are the caller's own words; of long ones the beginning is enough.
_MOST = 1000


async def note_visit(platform: Platform, scope: Scope, caller: Caller) -> None:
    """Write it down, if the operator goes into what is somebody else's; nothing happens there before that."""
    found = _INSIDE.fullmatch(scope["path"])
    if found is None or not caller.is_owner:
        return
    method, tail, one = scope.get("method", "WEBSOCKET"), found["tail"] or "", _ONE[found["noun"]]
    # A job's record holds what its program said.
    if is_record_alone(method, tail) and one != "job":
        return
    visited = await _find(platform, found["noun"], found["id"], caller)
    if visited is None or visited.account == caller.account:
        return
    query: bytes = scope["query_string"]
    data = {
        "account": visited.account,
        "method": method,
        "path": scope["path"][:_MOST],
        "query": query.decode("latin-1")[:_MOST],
    }
    now = platform.clock.now()

    def append(conn: Connection) -> None:
        audit.append(
            conn,
            actor=f"key:{caller.public_key}",
            action=action_of(method, tail, one),
            subject=visited.id,
            reason="asked",
            data=data,
            now=now,
        )

    await platform.store.write(append)


async def note_use(platform: Platform, caller: Caller, noun: str, id_: str, what: str) -> None:
    """Before the operator makes something in or of a tenant's thing that the body names."""
    named = {"path": f"/v1/{noun}/{id_}/{what}", "method": "POST", "query_string": b""}
    await note_visit(platform, named, caller)


async def note_endings(platform: Platform, caller: Caller, due: Sequence[Sandbox]) -> None:
    """Before the operator ends those that are past their time."""
    tenants = [sandbox for sandbox in due if sandbox.account != caller.account]
    now = platform.clock.now()
    if tenants:
        await platform.store.write(lambda conn: _append_endings(conn, caller, tenants, now))


def is_record_alone(method: str, tail: str) -> bool:
    """A look at the record itself, which the operator's list shows as well: nothing inside is seen."""
    return method in ("GET", "HEAD") and not tail


def action_of(method: str, tail: str, one: str = "sandbox") -> str:
    """`sandbox.files.content`, `session.exec`, …: the words of the path, without ids. Pure."""
    words = [word for word in tail.split("/") if _WORD.fullmatch(word)]
    if not words:
        return f"{one}.destroy" if method == "DELETE" else f"{one}.{method.lower()}"
    return ".".join((one, *words))


class _Owned(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def account(self) -> str: ...


async def _find(platform: Platform, noun: str, id_: str, caller: Caller) -> _Owned | None:
    try:
        match noun:
            case "sessions":
                return await platform.sessions.get(id_, caller)
            case "services":
                return platform.services.get(id_, caller)
            case "jobs":
                return (await platform.execution.jobs.get(id_, caller)).job
            case "snapshots":
                return await platform.artifacts.snapshots.get(id_, caller)
            case "images":
                return await platform.artifacts.images.get(id_, caller)
            case "volumes":
                return await platform.artifacts.volumes.get(id_, caller)
            case _:
                return await platform.sandboxes.room.book.find(id_)
    except NotFound:
        return None


def _append_endings(conn: Connection, caller: Caller, ended: Sequence[Sandbox], now: datetime) -> None:
    for sandbox in ended:
        audit.append(
            conn,
            actor=f"key:{caller.public_key}",
            action="sandbox.expire",
            subject=sandbox.id,
            reason="asked",
            data={"account": sandbox.account},
            now=now,
        )
