"""Is everything there that an answer needs? Asked by anyone, uncounted, so it is looked at once a second."""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Literal

from fastapi import FastAPI
from sqlalchemy import Connection, select

from sandboxer.wire.host import Health
from sandboxer.wiring import Platform

log = logging.getLogger(__name__)
KEPT_S = 1.0
ANSWERS_WITHIN_S = 5.0
Check = Literal["ok", "failing"]


@dataclass(frozen=True)
class _Seen:
    at: float
    health: Health


async def look(app: FastAPI) -> Health:
    seen: _Seen | None = getattr(app.state, "health", None)
    if seen is None or time.monotonic() - seen.at > KEPT_S:
        seen = app.state.health = _Seen(time.monotonic(), await _health(app.state.platform))
    return seen.health


async def _health(platform: Platform) -> Health:
    checks: dict[str, Check] = {"store": await _store(platform)}
    for name in sorted(platform.backends):
        # What it last said: asking anew is slow, and for the owner (GET /v1/host).
        known = platform.sandboxes.room.known_fingerprints.get(name)
        checks[name] = "ok" if known is None or known.healthy else "failing"
    is_well = all(check == "ok" for check in checks.values())
    return Health(status="ok" if is_well else "degraded", checks=checks)


async def _store(platform: Platform) -> Check:
    try:
        async with asyncio.timeout(ANSWERS_WITHIN_S):
            await platform.store.read(_ask)
    except Exception:
        # Whatever it is, it is the answer to the question.
        log.exception("the database does not answer")
        return "failing"
    return "ok"


def _ask(conn: Connection) -> None:
    conn.execute(select(1)).one()
