"""Manages API keys after they were made: secrets are fetched once, keys are regenerated, suspended,
validated.

A key that was made while nobody was listening (a payment came in) waits for its secret to be fetched within
15 minutes, by whoever holds the claim that was handed out beforehand. Later only a new one can be had, free.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import field, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from sqlalchemy import Connection, Row, select, update

from sandboxer.identity.authenticate import matches
from sandboxer.identity.keys import PREFIX as BEARER_PREFIX
from sandboxer.identity.keys import Also, Keys, NewKey, generate, keys, random_secret, secret_hash
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.observe.events import record
from sandboxer.store.engine import Store
from sandboxer.store.workers import announce

REVEAL_FOR = timedelta(minutes=15)


@brief_value_class
class Claim:
    """Lets whoever pays fetch a secret later. Hand out `token`; keep only `hash`."""

    token: str = field(repr=False)

    @property
    def hash(self) -> str:
        return secret_hash(self.token.encode())


@value_class
class Tier:
    """Says what an account has paid for."""

    level: int
    requests_per_minute: int
    slots: int
    until: datetime | None


T = TypeVar("T")
TierOf = Callable[[str], Awaitable[Tier | None]]


@value_class
class KeyReport:
    """Holds what anyone who knows a public key may learn: not its account, nor why it was suspended."""

    public_key: str
    is_valid: bool
    # Why not: invalid_key (unknown or revoked), suspended, expired.
    reason: str | None
    expires_at: datetime | None
    expired_ago_s: int | None
    tier: Tier | None


def new_claim() -> Claim:
    return Claim(secrets.token_urlsafe(32))


class KeyLife:
    def __init__(self, keys: Keys, store: Store, clock: Clock) -> None:
        self._keys = keys
        self._store = store
        self._clock = clock

    def prepare(
        self,
        conn: Connection,
        account: str,
        name: str,
        *,
        claim_hash: str,
        actor: str,
        expires_at: datetime | None = None,
    ) -> str:
        """Makes a key whose secret is fetched later with the claim; returns its public half.

        Inside the caller's write transaction: the key exists if and only if what paid for it does.
        """
        new = generate(account, name, accepts_v1=False)
        self._keys.insert(conn, new, actor=actor, expires_at=expires_at, claim_hash=claim_hash)
        return new.public_key

    def claim_for(self, secret: str, asked: str) -> Claim:
        """Returns the same claim again to whoever repeats the request and knows its secret."""
        digest = hashlib.sha256(asked.encode()).hexdigest()
        return Claim(
            base64.urlsafe_b64encode(self._keys.derived(f"claim {digest} {secret}")).decode().rstrip("=")
        )

    async def reveal(self, public_key: str, claim: str, *, accepts_v1: bool = False) -> NewKey:
        """Returns the secret, once, within 15 minutes after the key was made. Whoever signs version 1 only
        says so now.
        """
        now = self._clock.now()

        def reveal(conn: Connection) -> NewKey:
            row = _claimed(conn, public_key, claim)
            if row.revealed_at is not None:
                raise Conflict(
                    why="this secret was handed over before",
                    reason="already_revealed",
                    hint="Give the key a new one with the account's other credentials; that is free:"
                    f" POST /v1/keys/{public_key}/regenerate.",
                )
            if now >= row.created_at + REVEAL_FOR:
                raise Conflict(
                    why="the 15 minutes in which this secret could be fetched are over",
                    reason="reveal_over",
                    hint=f"Make a new one with the same claim: POST /v1/keys/{public_key}/regenerate.",
                )
            _change(conn, public_key, revealed_at=now, accepts_v1=accepts_v1 or row.accepts_v1)
            _tell(conn, row, "key.revealed", actor="claim", now=now)
            shown = _new_key(row, self._keys.opened(row).decode())
            return replace(shown, accepts_v1=accepts_v1 or row.accepts_v1)

        try:
            return await self._store.write(reveal)
        finally:
            self._keys.forget(public_key)

    async def regenerate(
        self, public_key: str, *, account: str | None, actor: str, also: Also | None = None
    ) -> NewKey:
        """Makes a new secret for the same key; the old one ends at once. It is free. `account` None means
        the operator asks.
        """

        def pick(conn: Connection) -> Row[Any]:
            row = _live(conn, public_key)
            if account is not None and row.account != account:
                raise _unknown(public_key)
            return row

        return await self._regenerate(pick, public_key, actor, also)

    async def regenerate_by_claim(self, public_key: str, claim: str) -> NewKey:
        """Makes a new secret for someone who came too late to fetch the first. Works until a secret was
        handed over.
        """

        def pick(conn: Connection) -> Row[Any]:
            row = _claimed(conn, public_key, claim)
            if row.revealed_at is not None:
                raise Conflict(
                    why="this key's secret was handed over before",
                    reason="already_revealed",
                    hint="Give the key a new one with the account's other credentials:"
                    f" POST /v1/keys/{public_key}/regenerate.",
                )
            return row

        return await self._regenerate(pick, public_key, "claim")

    async def suspend(self, public_key: str, *, why: str, actor: str, also: Also | None = None) -> None:
        """Suspends a key: it signs nothing until unsuspended. Suspending twice keeps the first reason."""
        now = self._clock.now()

        def suspend(conn: Connection) -> None:
            row = _live(conn, public_key)
            _refuse_owner(row, "suspended: nobody could undo it")
            if row.suspended_at is None:
                _change(conn, public_key, suspended_at=now, suspended_why=why)
                _tell(conn, row, "key.suspended", actor=actor, now=now, reason=why)

        await self._apply(suspend, public_key, also)

    async def unsuspend(self, public_key: str, *, actor: str, also: Also | None = None) -> None:
        now = self._clock.now()

        def unsuspend(conn: Connection) -> None:
            row = _live(conn, public_key)
            if row.suspended_at is not None:
                _change(conn, public_key, suspended_at=None, suspended_why=None)
                _tell(conn, row, "key.unsuspended", actor=actor, now=now)

        await self._apply(unsuspend, public_key, also)

    async def set_expiry(
        self, public_key: str, expires_at: datetime | None, *, actor: str, also: Also | None = None
    ) -> None:
        """Sets when a key expires. A key that has expired works again once it is paid for."""
        now = self._clock.now()

        def change(conn: Connection) -> None:
            row = _live(conn, public_key)
            _refuse_owner(row, "made to expire: nobody could make another")
            _change(conn, public_key, expires_at=expires_at)
            _tell(conn, row, "key.expiry_set", actor=actor, now=now)

        await self._apply(change, public_key, also)

    async def issue_bearer(
        self, public_key: str, *, account: str | None, actor: str, also: Also | None = None
    ) -> str:
        """Makes the bearer token of a key; an older one ends at once. `account` None means the operator
        asks.
        """
        token = random_secret(BEARER_PREFIX)
        await self._set_bearer(public_key, token, account=account, actor=actor, also=also)
        return token

    async def end_bearer(
        self, public_key: str, *, account: str | None, actor: str, also: Also | None = None
    ) -> None:
        """Ends the bearer token of a key. None there is success."""
        await self._set_bearer(public_key, None, account=account, actor=actor, also=also)

    async def _set_bearer(
        self, public_key: str, token: str | None, *, account: str | None, actor: str, also: Also | None
    ) -> None:
        now = self._clock.now()
        digest, word = (None, "ended") if token is None else (secret_hash(token.encode()), "issued")

        def change(conn: Connection) -> None:
            row = _live(conn, public_key)
            if account is not None and row.account != account:
                raise _unknown(public_key)
            _change(conn, public_key, bearer_hash=digest)
            _tell(conn, row, f"key.bearer_{word}", actor=actor, now=now)

        await self._apply(change, public_key, also)

    async def validate(self, public_key: str, *, tier_of: TierOf | None = None) -> KeyReport:
        """Says whether this key would be accepted, and with which limits. Unknown and revoked look the
        same.
        """
        now = self._clock.now()
        if (key := await self._keys.lookup(public_key)) is None:
            return KeyReport(
                public_key=public_key,
                is_valid=False,
                reason="invalid_key",
                expires_at=None,
                expired_ago_s=None,
                tier=None,
            )
        reason = key.why_not(now)
        ago = int((now - key.expires_at).total_seconds()) if key.expires_at and reason == "expired" else None
        return KeyReport(
            public_key=public_key,
            is_valid=reason is None,
            reason=reason,
            expires_at=key.expires_at,
            expired_ago_s=ago,
            tier=None if tier_of is None else await tier_of(key.caller.account),
        )

    async def _regenerate(
        self,
        pick: Callable[[Connection], Row[Any]],
        public_key: str,
        actor: str,
        also: Also | None = None,
    ) -> NewKey:
        now = self._clock.now()
        secret_key = random_secret()

        def regenerate(conn: Connection) -> NewKey:
            row = pick(conn)
            _refuse_owner(row, "regenerated here: owner.json holds its secret")
            columns = self._keys.sealed(public_key, secret_key)
            # Whoever replaces a secret that leaked means everything that stands for this key.
            _change(conn, public_key, **columns, rotated_at=now, revealed_at=now, bearer_hash=None)
            _tell(conn, row, "key.regenerated", actor=actor, now=now)
            return _new_key(row, secret_key)

        return await self._apply(regenerate, public_key, also)

    async def _apply(self, change: Callable[[Connection], T], public_key: str, also: Also | None = None) -> T:
        def apply(conn: Connection) -> T:
            done = change(conn)
            if also is not None:
                also(conn, public_key)
            return done

        try:
            return await self._store.write(apply)
        finally:
            self._keys.forget(public_key)


def _live(conn: Connection, public_key: str) -> Row[Any]:
    row = conn.execute(
        select(keys).where(keys.c.public_key == public_key, keys.c.revoked_at.is_(None))
    ).one_or_none()
    if row is None:
        raise _unknown(public_key)
    return row


def _claimed(conn: Connection, public_key: str, claim: str) -> Row[Any]:
    """Returns the key that this claim is for. A wrong claim and an unknown key are answered alike."""
    row = conn.execute(
        select(keys).where(keys.c.public_key == public_key, keys.c.revoked_at.is_(None))
    ).one_or_none()
    expected = "" if row is None or row.claim_hash is None else row.claim_hash
    if not matches(expected, secret_hash(claim.encode("utf-8", "surrogatepass"))) or row is None:
        raise _unknown(public_key)
    return row


def _change(conn: Connection, public_key: str, **columns: Any) -> None:
    conn.execute(update(keys).where(keys.c.public_key == public_key).values(**columns))


def _tell(
    conn: Connection, row: Row[Any], kind: str, *, actor: str, now: datetime, reason: str = "asked"
) -> None:
    record(conn, subject=row.public_key, kind=kind, actor=actor, reason=reason, at=now)
    # What it cut may act no longer than itself: whoever remembers that looks again.
    announce(conn, row.account)


def _refuse_owner(row: Row[Any], what: str) -> None:
    if row.is_owner:
        hint = f"Give it a new secret instead: POST /v1/keys/{row.public_key}/regenerate."
        raise Conflict(why=f"the owner's key cannot be {what}", hint=hint)


def _unknown(public_key: str) -> NotFound:
    return NotFound(what="key", id=public_key)


def _new_key(row: Row[Any], secret_key: str) -> NewKey:
    return NewKey(
        public_key=row.public_key,
        secret_key=secret_key,
        account=row.account,
        name=row.name,
        accepts_v1=row.accepts_v1,
    )
