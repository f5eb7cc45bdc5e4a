"""The operator inside a tenant's sandbox: a row in the audit log before anything is done there.

Asked once, in front of every route whose path names a sandbox, so that no route can forget it. The row says
what was asked for, not how it ended; the sandbox's own events tell that. In its own sandboxes the operator
may do as it likes: a look into memory, and no row.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection
from starlette.types import Scope

from sandboxer.accounts import audit
from sandboxer.identity.keys import Caller
from sandboxer.sandboxes.records import Sandbox
from sandboxer.wiring import Platform

_IN_A_SANDBOX = re.compile(r"/v1/sandboxes/(?P<id>sbx_[^/]+)(?P<tail>/.*)?")
_WORD = re.compile(r"[a-z]+(-[a-z]+)*")
# Paths and queries are the caller's own words; of long ones the beginning is enough.
_MOST = 1000


async def note_visit(platform: Platform, scope: Scope, caller: Caller) -> None:
    """Write it down, if the operator goes into somebody else's sandbox; nothing happens there before that."""
    found = _IN_A_SANDBOX.fullmatch(scope["path"])
    if found is None or not caller.is_owner:
        return
    method, tail = scope.get("method", "WEBSOCKET"), found["tail"] or ""
    if is_record_alone(method, tail):
        return
    sandbox = await platform.sandboxes.room.book.find(found["id"])
    if sandbox is None or sandbox.account == caller.account:
        return
    query: bytes = scope["query_string"]
    data = {
        "account": sandbox.account,
        "method": method,
        "path": scope["path"][:_MOST],
        "query": query.decode("latin-1")[:_MOST],
    }
    now = platform.clock.now()

    def append(conn: Connection) -> None:
        audit.append(
            conn,
            actor=f"key:{caller.public_key}",
            action=action_of(method, tail),
            subject=sandbox.id,
            reason="asked",
            data=data,
            now=now,
        )

    await platform.store.write(append)


async def note_endings(platform: Platform, caller: Caller, due: Sequence[Sandbox]) -> None:
    """Before the operator ends those that are past their time."""
    tenants = [sandbox for sandbox in due if sandbox.account != caller.account]
    now = platform.clock.now()
    if tenants:
        await platform.store.write(lambda conn: _append_endings(conn, caller, tenants, now))


def is_record_alone(method: str, tail: str) -> bool:
    """A look at the record itself, which the operator's list shows as well: nothing inside is seen."""
    return method in ("GET", "HEAD") and not tail


def action_of(method: str, tail: str) -> str:
    """`sandbox.files.content`, `sandbox.stop`, …: the words of the path, without ids. Pure."""
    words = [word for word in tail.split("/") if _WORD.fullmatch(word)]
    if not words:
        return "sandbox.destroy" if method == "DELETE" else f"sandbox.{method.lower()}"
    return ".".join(("sandbox", *words))


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
