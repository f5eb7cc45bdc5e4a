"""Hands out nonces to be signed. Each works once and is used up before its signature is checked: a wrong
signature costs the nonce, and of two callers with the same one, one wins.

Bounded per purpose and, where an account asked, per account: nobody can keep others from being asked.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

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
        """Issues a nonce. Raises Unavailable if too many wait to be signed."""
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
        """Uses up a challenge and returns it; nobody can present it again. Call it before checking
        anything else.
        """
        now = self._clock.now()
        claim = (
            delete(challenges)
            .where(challenges.c.nonce == nonce[: _LONGEST_NONCE + 1], challenges.c.purpose == purpose)
            .returning(challenges.c.account, challenges.c.bound_to, challenges.c.expires_at)
        )
        row = None
        # What cannot be a nonce costs no write.
        if len(nonce) <= _LONGEST_NONCE and nonce.isascii() and nonce.isalnum():
            row = await self._store.write(lambda conn: conn.execute(claim).one_or_none())
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
        """Issues a nonce, and returns when it ends."""
        # Whole seconds: the moment is written into texts.
        expires_at = (self._clock.now() + self._lifetime).replace(microsecond=0)
        body = f"{int(expires_at.timestamp()):0{_END}x}" + secrets.token_hex(_RANDOM // 2)
        return body + self._mac(body), expires_at

    def end_of(self, nonce: str) -> datetime | None:
        """Returns when the nonce ends; None if we did not make it."""
        if len(nonce) != _LENGTH or not nonce.isascii():
            return None
        body, mac = nonce[:-_MAC], nonce[-_MAC:]
        if not hmac.compare_digest(mac.encode(), self._mac(body).encode()):
            return None
        return datetime.fromtimestamp(int(body[:_END], 16), UTC)

    async def use(self, nonce: str, expires_at: datetime) -> None:
        """Uses up the nonce of a message whose signature was checked. Raises Unauthenticated the second
        time, or too late.
        """
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


_FIRST_LINES = {
    "session": "Sign this message to authenticate with sandboxer.",
    "link": "Sign this message to link this wallet to an account of sandboxer.",
}


def challenge_message(challenge: Challenge, domain: str) -> str:
    lines = [_FIRST_LINES[challenge.purpose], "", f"Domain: {domain}"]
    if challenge.account:
        lines.append(f"Account: {challenge.account}")
    lines += [f"Nonce: {challenge.nonce}", f"Expires: {int(challenge.expires_at.timestamp())}"]
    return "\n".join(lines)
