"""Nonces that nobody stores: each carries its own end and our MAC over it, and a row is written only when a
wallet has signed one. So telling strangers how to sign in costs nothing, however many ask.

A nonce still serves once. It is marked used after the signature was checked, so a wrong signature costs the
nonce nothing, and writes nothing either.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from datetime import UTC, datetime, timedelta

from sqlalchemy import Connection, delete, insert, select
from sqlalchemy.exc import IntegrityError

from sandboxer.identity.tables import challenges
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Unauthenticated
from sandboxer.store.engine import Store

# Hex digits: the end in seconds, what makes it unlike any other, the MAC over both.
_END, _RANDOM, _MAC = 16, 16, 32
_LENGTH = _END + _RANDOM + _MAC
USED = "siwx-used"


class SealedNonces:
    def __init__(self, store: Store, clock: Clock, *, key: bytes, lifetime: timedelta) -> None:
        self._store = store
        self._clock = clock
        self._key = key
        self._lifetime = lifetime

    def issue(self) -> tuple[str, datetime]:
        """A fresh one, and when it ends."""
        # Whole seconds: the moment is written into texts.
        expires_at = (self._clock.now() + self._lifetime).replace(microsecond=0)
        body = f"{int(expires_at.timestamp()):0{_END}x}" + secrets.token_hex(_RANDOM // 2)
        return body + self._mac(body), expires_at

    def end_of(self, nonce: str) -> datetime | None:
        """When it ends, if we made it; None: it is none of these."""
        if len(nonce) != _LENGTH or not nonce.isascii():
            return None
        body, mac = nonce[:-_MAC], nonce[-_MAC:]
        if not hmac.compare_digest(mac.encode(), self._mac(body).encode()):
            return None
        return datetime.fromtimestamp(int(body[:_END], 16), UTC)

    async def use(self, nonce: str, expires_at: datetime) -> None:
        """For a message whose signature was checked. Raises Unauthenticated the second time, or too late."""
        now = self._clock.now()
        if expires_at <= now or not await self._mark(nonce, expires_at, now):
            raise Unauthenticated(
                why="this nonce was used, or is too old",
                reason="bad_nonce",
                hint="Ask for a new one (GET /v1/auth/siwx) and sign that, within 300 s. Each works once.",
            )

    async def _mark(self, nonce: str, expires_at: datetime, now: datetime) -> bool:
        row = {"nonce": nonce, "purpose": USED, "account": "", "bound_to": "", "expires_at": expires_at}

        def mark(conn: Connection) -> bool:
            conn.execute(delete(challenges).where(challenges.c.expires_at <= now))
            if conn.execute(select(challenges.c.nonce).where(challenges.c.nonce == nonce)).first():
                return False
            conn.execute(insert(challenges).values(**row))
            return True

        try:
            return await self._store.write(mark)
        except IntegrityError:
            # Another process was faster.
            return False

    def _mac(self, body: str) -> str:
        return hmac.new(self._key, body.encode(), hashlib.sha256).hexdigest()[:_MAC]
