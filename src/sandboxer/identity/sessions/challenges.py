"""Nonces handed out to be signed. Each is taken once, before its signature is looked at: a wrong signature
costs the nonce, and of two who present the same one, one wins.

Bounded per purpose and, where an account asked, per account: nobody can keep others from being asked.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import Connection, delete, func, insert, select

from sandboxer.identity.tables import challenges
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Unauthenticated, Unavailable
from sandboxer.store.engine import Store

Purpose = Literal["session", "link", "siwx", "genesis", "second-proof"]
LIFETIME = timedelta(seconds=300)
CAPACITY = 10_000
CAPACITY_PER_ACCOUNT = 100
_LONGEST_NONCE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Challenge:
    nonce: str
    purpose: Purpose
    account: str
    bound_to: str
    expires_at: datetime


class Challenges:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        lifetime: timedelta = LIFETIME,
        capacity: int = CAPACITY,
        capacity_per_account: int = CAPACITY_PER_ACCOUNT,
    ) -> None:
        self._store = store
        self._clock = clock
        self._lifetime = lifetime
        self._capacity = capacity
        self._capacity_per_account = capacity_per_account

    async def issue(self, purpose: Purpose, *, account: str = "", bound_to: str = "") -> Challenge:
        """A fresh one; Unavailable where too many wait to be signed."""
        now = self._clock.now()
        made = Challenge(
            nonce=secrets.token_hex(32),
            purpose=purpose,
            account=account,
            bound_to=bound_to,
            # Whole seconds: the moment is written into texts.
            expires_at=(now + self._lifetime).replace(microsecond=0),
        )

        def issue(conn: Connection) -> None:
            conn.execute(delete(challenges).where(challenges.c.expires_at <= now))
            self._refuse_if_full(conn, purpose, account, self._capacity)
            conn.execute(
                insert(challenges).values(
                    nonce=made.nonce,
                    purpose=purpose,
                    account=account,
                    bound_to=bound_to,
                    expires_at=made.expires_at,
                )
            )

        await self._store.write(issue)
        return made

    async def take(self, purpose: Purpose, nonce: str) -> Challenge:
        """The challenge, which nobody can present again. Call it before checking anything else."""
        now = self._clock.now()
        taken = (
            delete(challenges)
            .where(challenges.c.nonce == nonce[: _LONGEST_NONCE + 1], challenges.c.purpose == purpose)
            .returning(challenges.c.account, challenges.c.bound_to, challenges.c.expires_at)
        )
        row = None
        # What cannot be a nonce costs no write.
        if len(nonce) <= _LONGEST_NONCE and nonce.isascii() and nonce.isalnum():
            row = await self._store.write(lambda conn: conn.execute(taken).one_or_none())
        if row is None or row.expires_at <= now:
            raise Unauthenticated(
                why="this nonce was never handed out for this, was used, or is too old",
                reason="bad_nonce",
                hint="Ask for a new challenge and sign that one, within 300 s. Each works once.",
            )
        return Challenge(
            nonce=nonce,
            purpose=purpose,
            account=row.account,
            bound_to=row.bound_to,
            expires_at=row.expires_at,
        )

    def _refuse_if_full(self, conn: Connection, purpose: Purpose, account: str, capacity: int) -> None:
        waiting = select(func.count()).select_from(challenges).where(challenges.c.purpose == purpose)
        if account:
            own = conn.execute(waiting.where(challenges.c.account == account)).scalar_one()
            if own >= self._capacity_per_account:
                raise _too_many("this account has too many challenges that nobody answered")
        if conn.execute(waiting).scalar_one() >= capacity:
            raise _too_many("too many challenges wait to be answered")


def _too_many(why: str) -> Unavailable:
    return Unavailable(
        why=why,
        reason="too_many_challenges",
        retry_after_s=int(LIFETIME.total_seconds()),
        hint="Answer a challenge you have, or retry in a few minutes.",
    )
