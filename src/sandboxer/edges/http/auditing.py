"""What the owner did to keys, written into the audit log; accounts and money write theirs themselves."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request

from sandboxer.accounts import audit
from sandboxer.edges.http.state import caller, platform_of


async def write_down(
    request: Request, action: str, subject: str, *, reason: str = "asked", **data: Any
) -> None:
    """After the act: a row tells of what happened, not of what was tried. Only the owner's acts."""
    platform, who = platform_of(request), caller(request)
    if not who.is_owner:
        return
    now = platform.clock.now()

    def append(conn: Connection) -> None:
        audit.append(
            conn,
            actor=f"key:{who.public_key}",
            action=action,
            subject=subject,
            reason=reason,
            data=data,
            now=now,
        )

    await platform.store.write(append)
