"""Hands out nonces to be signed. Each works once and is used up before its signature is checked: a wrong
signature costs the nonce, and of two callers with the same one, one wins.

What a stranger asks for is sealed and not stored, so that nobody can fill the places of others: the nonce
says itself when it ends and that we made it, and is written down when it is used. What an account asks for is
stored, bounded for each account and in all; then the oldest is dropped of whoever waits for most.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from sqlalchemy import Connection, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from sandboxer.identity.tables import challenges
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Unauthenticated, Unavailable
from sandboxer.kernel.values import value_class
from sandboxer.store.engine import Store

Purpose = Literal["session", "link", "siwx", "genesis", "second-proof"]
LIFETIME = timedelta(seconds=300)
CAPACITY = 10_000
CAPACITY_PER_ACCOUNT = 100
_LONGEST_NONCE = 64


@value_class
class Challenge:
    nonce: str
    purpose: Purpose
    account: str
    bound_to: str
    expires_at: datetime


# Hex digits of a sealed nonce: the end in seconds, what makes it unlike any other, the MAC over both.
_END, _RANDOM, _MAC = 16, 16, 32
_LENGTH = _END + _RANDOM + _MAC
USED = "used"


@dataclass(eq=False, repr=False)
class Challenges:
    store: Store
    clock: Clock
    _: KW_ONLY
    # What sealed nonces are made with.
    key: bytes
    lifetime: timedelta = LIFETIME
    capacity: int = CAPACITY
    capacity_per_account: int = CAPACITY_PER_ACCOUNT

    def seal(self, purpose: Purpose) -> Challenge:
        """Makes a nonce for anybody. It costs nothing until it is used."""
        expires_at = self._end()
        body = f"{int(expires_at.timestamp()):0{_END}x}" + secrets.token_hex(_RANDOM // 2)
        nonce = body + self._mac(purpose, body)
        return Challenge(nonce=nonce, purpose=purpose, account="", bound_to="", expires_at=expires_at)

    async def issue(self, purpose: Purpose, *, account: str, bound_to: str = "") -> Challenge:
        """Issues a nonce to an account. Raises Unavailable if too many of it wait to be signed."""
        now = self.clock.now()
        made = Challenge(
            nonce=secrets.token_hex(32),
            purpose=purpose,
            account=account,
            bound_to=bound_to,
            expires_at=self._end(),
        )

        def issue(conn: Connection) -> None:
            conn.execute(delete(challenges).where(challenges.c.expires_at <= now))
            self._make_room(conn, purpose, account)
            conn.execute(
                insert(challenges).values(
                    nonce=made.nonce,
                    purpose=purpose,
                    account=account,
                    bound_to=bound_to,
                    expires_at=made.expires_at,
                )
            )

        await self.store.write(issue)
        return made

    async def take(self, purpose: Purpose, nonce: str) -> Challenge:
        """Uses up a challenge and returns it; nobody can present it again. Call it before checking
        anything else.
        """
        now = self.clock.now()
        # What cannot be a nonce costs no write.
        if len(nonce) > _LONGEST_NONCE or not (nonce.isascii() and nonce.isalnum()):
            raise _bad_nonce()
        if (ends := self._end_of(purpose, nonce)) is not None:
            if ends <= now or not await self._mark(nonce, ends, now):
                raise _bad_nonce()
            return Challenge(nonce=nonce, purpose=purpose, account="", bound_to="", expires_at=ends)
        claim = (
            delete(challenges)
            .where(challenges.c.nonce == nonce, challenges.c.purpose == purpose)
            .returning(challenges.c.account, challenges.c.bound_to, challenges.c.expires_at)
        )
        row = await self.store.write(lambda conn: conn.execute(claim).one_or_none())
        if row is None or row.expires_at <= now:
            raise _bad_nonce()
        return Challenge(
            nonce=nonce,
            purpose=purpose,
            account=row.account,
            bound_to=row.bound_to,
            expires_at=row.expires_at,
        )

    def _end(self) -> datetime:
        # Whole seconds: the moment is written into texts.
        return (self.clock.now() + self.lifetime).replace(microsecond=0)

    def _end_of(self, purpose: Purpose, nonce: str) -> datetime | None:
        """Returns when a sealed nonce ends; None if we did not make it for this purpose."""
        body, mac = nonce[:-_MAC], nonce[-_MAC:]
        if len(nonce) != _LENGTH or not hmac.compare_digest(mac, self._mac(purpose, body)):
            return None
        return datetime.fromtimestamp(int(body[:_END], 16), UTC)

    async def _mark(self, nonce: str, expires_at: datetime, now: datetime) -> bool:
        """Writes down that a sealed nonce was used. Returns whether it was the first time."""
        row = {"nonce": nonce, "purpose": USED, "account": "", "bound_to": "", "expires_at": expires_at}

        def mark(conn: Connection) -> bool:
            conn.execute(delete(challenges).where(challenges.c.expires_at <= now))
            if conn.execute(select(challenges.c.nonce).where(challenges.c.nonce == nonce)).first():
                return False
            conn.execute(insert(challenges).values(**row))
            return True

        try:
            return await self.store.write(mark)
        except IntegrityError:
            # Another process was faster.
            return False

    def _mac(self, purpose: Purpose, body: str) -> str:
        return hmac.new(self.key, f"{purpose}:{body}".encode(), hashlib.sha256).hexdigest()[:_MAC]

    def _make_room(self, conn: Connection, purpose: Purpose, account: str) -> None:
        waiting = select(func.count()).select_from(challenges).where(challenges.c.purpose == purpose)
        if conn.execute(waiting.where(challenges.c.account == account)).scalar_one() >= (
            self.capacity_per_account
        ):
            raise _too_many()
        if (surplus := conn.execute(waiting).scalar_one() - self.capacity + 1) > 0:
            columns = challenges.c
            of = columns.purpose == purpose
            most = select(columns.account).where(of).group_by(columns.account)
            of &= columns.account.in_(most.order_by(func.count().desc()).limit(1))
            oldest = select(columns.nonce).where(of).order_by(columns.expires_at, columns.nonce)
            conn.execute(delete(challenges).where(columns.nonce.in_(oldest.limit(surplus))))


def _too_many() -> Unavailable:
    return Unavailable(
        why="this account has too many challenges that nobody answered",
        reason="too_many_challenges",
        retry_after_s=int(LIFETIME.total_seconds()),
        hint="Answer a challenge you have, or retry in a few minutes.",
    )


def _bad_nonce() -> Unauthenticated:
    return Unauthenticated(
        why="this nonce was never handed out for this, was used, or is too old",
        reason="bad_nonce",
        hint="Ask for a new challenge and sign that one, within 300 s. Each works once.",
    )


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
