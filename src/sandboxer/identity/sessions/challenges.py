"""Hands out nonces to be signed. Each works once and is used up before its signature is checked: a wrong
signature costs the nonce, and of two callers with the same one, one wins.

Bounded per purpose and, where an account asked, per account. When a purpose has reached its limit the
oldest nonce is dropped of whoever waits for most: of strangers, the network that asked. So who asks a lot
shortens the time that he has to sign himself, not that of others.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import KW_ONLY, dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from sqlalchemy import Connection, delete, func, insert, select, tuple_
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


@dataclass(eq=False, repr=False)
class Challenges:
    store: Store
    clock: Clock
    _: KW_ONLY
    lifetime: timedelta = LIFETIME
    capacity: int = CAPACITY
    capacity_per_account: int = CAPACITY_PER_ACCOUNT

    async def issue(self, purpose: Purpose, *, account: str = "", bound_to: str = "") -> Challenge:
        """Issues a nonce. Raises Unavailable if too many of this account wait to be signed."""
        now = self.clock.now()
        made = Challenge(
            nonce=secrets.token_hex(32),
            purpose=purpose,
            account=account,
            bound_to=bound_to,
            # Whole seconds: the moment is written into texts.
            expires_at=(now + self.lifetime).replace(microsecond=0),
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
        claim = (
            delete(challenges)
            .where(challenges.c.nonce == nonce[: _LONGEST_NONCE + 1], challenges.c.purpose == purpose)
            .returning(challenges.c.account, challenges.c.bound_to, challenges.c.expires_at)
        )
        row = None
        # What cannot be a nonce costs no write.
        if len(nonce) <= _LONGEST_NONCE and nonce.isascii() and nonce.isalnum():
            row = await self.store.write(lambda conn: conn.execute(claim).one_or_none())
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

    def _make_room(self, conn: Connection, purpose: Purpose, account: str) -> None:
        waiting = select(func.count()).select_from(challenges).where(challenges.c.purpose == purpose)
        if account:
            own = conn.execute(waiting.where(challenges.c.account == account)).scalar_one()
            if own >= self.capacity_per_account:
                raise _too_many()
        if (surplus := conn.execute(waiting).scalar_one() - self.capacity + 1) > 0:
            columns = challenges.c
            of = columns.purpose == purpose
            asker = tuple_(columns.account, columns.bound_to)
            most = (
                select(columns.account, columns.bound_to)
                .where(of)
                .group_by(columns.account, columns.bound_to)
            )
            of &= asker.in_(most.order_by(func.count().desc()).limit(1))
            oldest = select(columns.nonce).where(of).order_by(columns.expires_at, columns.nonce)
            conn.execute(delete(challenges).where(columns.nonce.in_(oldest.limit(surplus))))


def _too_many() -> Unavailable:
    return Unavailable(
        why="this account has too many challenges that nobody answered",
        reason="too_many_challenges",
        retry_after_s=int(LIFETIME.total_seconds()),
        hint="Answer a challenge you have, or retry in a few minutes.",
    )


# Hex digits: the end in seconds, what makes it unlike any other, the MAC over both.
_END, _RANDOM, _MAC = 16, 16, 32
_LENGTH = _END + _RANDOM + _MAC
USED = "siwx-used"


@dataclass(eq=False, repr=False)
class SealedNonces:
    store: Store
    clock: Clock
    _: KW_ONLY
    key: bytes
    lifetime: timedelta

    def issue(self) -> tuple[str, datetime]:
        """Issues a nonce, and returns when it ends."""
        # Whole seconds: the moment is written into texts.
        expires_at = (self.clock.now() + self.lifetime).replace(microsecond=0)
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
        now = self.clock.now()
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
            return await self.store.write(mark)
        except IntegrityError:
            # Another process was faster.
            return False

    def _mac(self, body: str) -> str:
        return hmac.new(self.key, body.encode(), hashlib.sha256).hexdigest()[:_MAC]


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
