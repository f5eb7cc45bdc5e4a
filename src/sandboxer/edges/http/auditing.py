"""What the owner did to keys, written into the audit log; accounts and money write theirs themselves."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection
from starlette.requests import Request

from sandboxer.accounts import audit
from sandboxer.edges.http.state import caller, platform_of
from sandboxer.identity.keys import Also


def written_down(request: Request, action: str, *, reason: str = "asked", **data: Any) -> Also:
    """For the transaction of the act: there is no act without its row, and no row without its act.

    Only the owner's acts are written.
    """
    platform, who = platform_of(request), caller(request)
    now = platform.clock.now()

    def append(conn: Connection, subject: str) -> None:
        if who.is_owner:
            audit.append(
                conn,
                actor=f"key:{who.public_key}",
                action=action,
                subject=subject,
                reason=reason,
                data=data,
                now=now,
            )

    return append


async def write_down(
    request: Request, action: str, subject: str, *, reason: str = "asked", **data: Any
) -> None:
    """After an act that is not one transaction of ours."""
    append = written_down(request, action, reason=reason, **data)
    await platform_of(request).store.write(lambda conn: append(conn, subject))
