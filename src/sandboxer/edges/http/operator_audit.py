"""Writes a row into the audit log before the operator does anything with what belongs to a tenant.

Asked once, in front of every operation that declares an `operator_audit`; handlers that name a thing in their
body ask by `note_use`. The row says what was asked for, not how it ended; the thing's own events tell that.
What the operator does with its own things is not written down.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from starlette.types import Scope

from sandboxer.accounts import audit
from sandboxer.edges.http.matcher import matched
from sandboxer.identity.keys import Caller
from sandboxer.kernel.errors import NotFound
from sandboxer.kernel.program import late
from sandboxer.sandboxes.records import Sandbox
from sandboxer.wire.operations.declaration import OperatorAudit
from sandboxer.wiring import Platform

if TYPE_CHECKING:
    from sandboxer.wire.operations import access as operations
else:
    operations = late("sandboxer.wire.operations.access")

# Paths and queries are the caller's own words; the beginning of long ones is enough.
_MOST = 1000
_PLURAL = {"sandbox": "sandboxes"}
_WORD = re.compile(r"[a-z]+(-[a-z]+)*")


async def audit_operation(platform: Platform, scope: Scope, caller: Caller) -> None:
    """Writes a row if the operator acts on what belongs to somebody else; nothing happens before that."""
    found = matched(scope)
    if found is None or found.operation.operator_audit is None or not caller.is_owner:
        return
    id_ = next(iter(found.names.values()))
    query: bytes = scope["query_string"]
    asked = {
        "method": scope.get("method", "WEBSOCKET"),
        "path": scope["path"][:_MOST],
        "query": query.decode("latin-1")[:_MOST],
    }
    await note(platform, caller, found.operation.operator_audit, id_, asked)


async def note_relay(
    platform: Platform, caller: Caller, sandbox_id: str, method: bytes, path: bytes, query: bytes
) -> None:
    """Writes a row before the operator connects to a port of a tenant's sandbox."""
    asked = {
        "method": method.decode("latin-1"),
        "path": path.decode("latin-1")[:_MOST],
        "query": query.decode("latin-1")[:_MOST],
    }
    if (row := operations.RELAY_PORT.operator_audit) is not None:
        # The words of the path inside belong to the row's action: what was asked of the program.
        inside = asked["path"].partition("/ports/")[2].split("/")[1:]
        action = ".".join((row.action, *(word for word in inside if _WORD.fullmatch(word))))
        await note(platform, caller, OperatorAudit(thing=row.thing, action=action), sandbox_id, asked)


async def note_use(platform: Platform, caller: Caller, thing: str, id_: str, what: str) -> None:
    """Writes a row before the operator uses a tenant's thing that the body names."""
    if caller.is_owner:
        asked = {
            "method": "POST",
            "path": f"/v1/{_PLURAL.get(thing, thing + 's')}/{id_}/{what}"[:_MOST],
            "query": "",
        }
        await note(platform, caller, OperatorAudit(thing=thing, action=f"{thing}.{what}"), id_, asked)


async def note(
    platform: Platform, caller: Caller, row: OperatorAudit, id_: str, asked: Mapping[str, str]
) -> None:
    """Writes a row; `asked` is what it says about the request."""
    owned = await _find(platform, row.thing, id_, caller)
    if owned is None or owned.account == caller.account:
        return
    said = {"account": owned.account, **asked}
    await audit.write_down(platform.store, caller, row.action, {owned.id: said}, now=platform.clock.now())


async def note_endings(platform: Platform, caller: Caller, due: Sequence[Sandbox]) -> None:
    """Writes a row before the operator ends what is past its time."""
    said = {sandbox.id: {"account": sandbox.account} for sandbox in due if sandbox.account != caller.account}
    await audit.write_down(platform.store, caller, "sandbox.expire", said, now=platform.clock.now())


class _Owned(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def account(self) -> str: ...


async def _find(platform: Platform, thing: str, id_: str, caller: Caller) -> _Owned | None:
    try:
        match thing:
            case "session":
                return await platform.sessions.get(id_, caller)
            case "service":
                return platform.services.get(id_, caller)
            case "job":
                return (await platform.execution.jobs.get(id_, caller)).job
            case "snapshot":
                return await platform.artifacts.snapshots.get(id_, caller)
            case "image":
                return await platform.artifacts.images.get(id_, caller)
            case "volume":
                return await platform.artifacts.volumes.get(id_, caller)
            case _:
                return await platform.sandboxes.repository.find(id_)
    except NotFound:
        return None
