"""Makes, finds, lists and revokes the keys that sign requests. Secrets are stored sealed and shown once.

Bearer tokens: a secret of its own that stands for a key in one header, so that curl works in one line.

A token is shown once and stored as a hash. It is never the secret that signs: whoever reads it on its way
cannot sign. It is accepted only where nobody on the way can read it, on this host or behind TLS, and it ends
with its key, with the key's secret, or when it is replaced or ended.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import field, replace
from datetime import datetime, timedelta
from ipaddress import ip_address
from typing import Any, Literal

from sqlalchemy import (
    Boolean,
    Column,
    Connection,
    Index,
    LargeBinary,
    Row,
    Table,
    Text,
    insert,
    select,
    update,
)

from sandboxer.identity.seal import Seal
from sandboxer.kernel.clock import Clock, SystemClock
from sandboxer.kernel.errors import Broken, Conflict, Unauthenticated, or_not_found
from sandboxer.kernel.values import value_class
from sandboxer.observe.events import record
from sandboxer.store.engine import Store
from sandboxer.store.metadata import UtcDateTime, metadata, nullable, required
from sandboxer.store.rows import from_row

OWNER_ACCOUNT = "owner"
Reason = Literal["revoked", "suspended", "expired"]
_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_PUBLIC_KEY = re.compile(r"sbx-pk-[0-9a-hjkmnp-tv-z]{26}")
_SECRET_KEY = re.compile(r"sbx-sk-[0-9a-hjkmnp-tv-z]{52}")
_CACHED_KEYS = 10_000
# A revocation by another process on the same database takes hold within this.
_CACHED_FOR = timedelta(seconds=60)

keys = Table(
    "keys",
    metadata,
    Column("public_key", Text, primary_key=True),
    *required(Text, "account", "name"),
    Column("sealed_secret", LargeBinary, nullable=False),
    *required(Boolean, "is_owner", "accepts_v1"),
    Column("created_at", UtcDateTime, nullable=False),
    Column("revoked_at", UtcDateTime, nullable=True),
    # SHA-256 of the secret, so that a sealed secret that opens to something else is noticed.
    Column("secret_hash", Text, nullable=True),
    *nullable(UtcDateTime, "expires_at", "suspended_at"),
    Column("suspended_why", Text, nullable=True),
    Column("rotated_at", UtcDateTime, nullable=True),
    # Who may fetch the secret of a key made in his absence: SHA-256 of what he was given beforehand.
    Column("claim_hash", Text, nullable=True),
    # When the secret was handed over; it is never handed over again.
    Column("revealed_at", UtcDateTime, nullable=True),
    # SHA-256 of the token that stands for this key in one header (`BearerTokens`).
    Column("bearer_hash", Text, nullable=True),
    Index(None, "account"),
    Index(None, "bearer_hash"),
)


@value_class
class Caller:
    """Names who a request comes from, for the packages above."""

    public_key: str
    account: str
    is_owner: bool = False
    accepts_v1: bool = False
    # Which of the key's secrets signed; None is the first one. Says nothing about who the caller is.
    rotated_at: datetime | None = field(default=None, compare=False)
    # The hash of the key's bearer token, if it has one; says nothing about who the caller is either.
    bearer_hash: str | None = field(default=None, compare=False, repr=False)
    came_by_bearer: bool = field(default=False, compare=False)


@value_class
class Key:
    caller: Caller
    name: str
    created_at: datetime
    revoked_at: datetime | None
    expires_at: datetime | None = None
    suspended_at: datetime | None = None
    suspended_why: str | None = None
    secret: bytes = field(repr=False)

    @property
    def public_key(self) -> str:
        return self.caller.public_key

    def why_not(self, now: datetime) -> Reason | None:
        """Returns why the key may not sign now; None if it may."""
        if self.revoked_at is not None:
            return "revoked"
        if self.suspended_at is not None:
            return "suspended"
        if self.expires_at is not None and self.expires_at <= now:
            return "expired"
        return None


@value_class
class NewKey:
    """Carries a new key with its secret, which is shown once. No other value carries a secret outwards."""

    public_key: str
    secret_key: str = field(repr=False)
    account: str
    name: str
    accepts_v1: bool


# Written in the transaction of the act itself, with the public key: an audit row, what hangs on the key.
Also = Callable[[Connection, str], None]


def is_public_key(text: str) -> bool:
    return _PUBLIC_KEY.fullmatch(text) is not None


def is_secret_key(text: str) -> bool:
    return _SECRET_KEY.fullmatch(text) is not None


# Whose secret leaked is replaced by a newer one (owner.json), and cannot end that one.
_NEWEST_OWNER = (
    select(keys.c.public_key)
    .where(keys.c.is_owner, keys.c.revoked_at.is_(None))
    .order_by(keys.c.created_at.desc())
    .limit(1)
)


class Keys:
    def __init__(self, store: Store, seal: Seal, *, clock: Clock | None = None) -> None:
        self._store = store
        self._seal = seal
        self._clock = clock or SystemClock()
        self._cache: OrderedDict[str, tuple[Key, datetime]] = OrderedDict()
        self._revocations = 0

    async def find(self, public_key: str) -> Key | None:
        """Returns the key if it may sign now; None if it is unknown or may not."""
        key = await self.lookup(public_key)
        return None if key is None or key.why_not(self._clock.now()) else key

    async def lookup(self, public_key: str) -> Key | None:
        """Returns the key, also if it is suspended or has expired; None if it is unknown or revoked.

        Usually answered without the database.
        """
        now = self._clock.now()
        if (cached := self._cache.get(public_key)) is not None and cached[1] > now:
            return cached[0]
        self._cache.pop(public_key, None)
        if not is_public_key(public_key):
            return None
        query = select(keys).where(keys.c.public_key == public_key, keys.c.revoked_at.is_(None))
        revocations = self._revocations
        if (row := await self._store.read(lambda conn: conn.execute(query).one_or_none())) is None:
            return None
        key = self._key(row)
        # What was read before a revocation must not be put back after it.
        if revocations == self._revocations:
            self._remember(key, until=now + _CACHED_FOR)
        return key

    async def create(
        self,
        account: str,
        name: str,
        accepts_v1: bool = False,
        *,
        actor: str = "owner",
        expires_at: datetime | None = None,
        also: Also | None = None,
    ) -> NewKey:
        """Makes a key that works at once. Unless it `accepts_v1`, only replay-proof signatures are
        accepted.
        """
        new = generate(account, name, accepts_v1=accepts_v1)

        def create(conn: Connection) -> None:
            self.insert(conn, new, is_owner=False, actor=actor, expires_at=expires_at)
            if also is not None:
                also(conn, new.public_key)

        await self._store.write(create)
        return new

    async def revoke(self, public_key: str, *, actor: str = "owner", also: Also | None = None) -> None:
        """Revokes a key: nothing it signs is accepted any more. Twice is no error; the newest owner's key
        stays.
        """
        now = self._clock.now()

        def revoke(conn: Connection) -> None:
            row = or_not_found(
                conn.execute(select(keys).where(keys.c.public_key == public_key)).one_or_none(),
                what="key",
                id=public_key,
            )
            if row.is_owner and conn.execute(_NEWEST_OWNER).scalar() == public_key:
                raise Conflict(
                    why="the owner's key cannot be revoked: nobody could make another",
                    hint=f"Give it a new secret instead: POST /v1/keys/{public_key}/regenerate.",
                )
            if row.revoked_at is not None:
                return
            conn.execute(update(keys).where(keys.c.public_key == public_key).values(revoked_at=now))
            record(conn, subject=public_key, kind="key.revoked", actor=actor, reason="asked", at=now)
            if also is not None:
                also(conn, public_key)

        try:
            await self._store.write(revoke)
        finally:
            self.forget(public_key)

    def forget(self, public_key: str) -> None:
        """Drops a key from the cache because its row has changed; what was read before is not put back."""
        self._revocations += 1
        self._cache.pop(public_key, None)

    async def list(self, account: str | None = None) -> list[Key]:
        """Returns every key, or every key of an account, oldest first, revoked ones included."""
        query = select(keys).order_by(keys.c.created_at, keys.c.public_key)
        if account is not None:
            query = query.where(keys.c.account == account)
        return [self._key(row) for row in await self._store.read(lambda conn: conn.execute(query).all())]

    async def owner(self) -> Key | None:
        query = select(keys).where(keys.c.is_owner, keys.c.revoked_at.is_(None)).order_by(keys.c.created_at)
        row = await self._store.read(lambda conn: conn.execute(query).first())
        return None if row is None else self._key(row)

    async def adopt_owner(self, new: NewKey) -> None:
        """Makes `new` an owner's key; does nothing if it is known already."""

        def adopt(conn: Connection) -> None:
            known = select(keys.c.public_key).where(keys.c.public_key == new.public_key)
            if conn.execute(known).one_or_none() is None:
                self.insert(conn, new, is_owner=True, actor="system:start")

        await self._store.write(adopt)

    def insert(
        self,
        conn: Connection,
        new: NewKey,
        *,
        is_owner: bool = False,
        actor: str,
        expires_at: datetime | None = None,
        claim_hash: str | None = None,
    ) -> None:
        """Writes a key in the caller's transaction, so that a key and what it is for are made together.

        With a `claim_hash` the secret waits to be fetched; without one it counts as handed over now.
        """
        now = self._clock.now()
        conn.execute(
            insert(keys).values(
                public_key=new.public_key,
                account=new.account,
                name=new.name,
                is_owner=is_owner,
                accepts_v1=new.accepts_v1,
                created_at=now,
                revoked_at=None,
                expires_at=expires_at,
                claim_hash=claim_hash,
                revealed_at=now if claim_hash is None else None,
                **self.sealed(new.public_key, new.secret_key),
            )
        )
        facts = {"account": new.account, "name": new.name, "accepts_v1": new.accepts_v1}
        record(
            conn, subject=new.public_key, kind="key.created", actor=actor, reason="asked", at=now, data=facts
        )

    def derived(self, info: str) -> bytes:
        """Derives a secret from `info` and from what this platform alone knows."""
        return self._seal.derive(info)

    def sealed(self, public_key: str, secret_key: str) -> dict[str, Any]:
        """Returns the columns that hold a secret, sealed."""
        return {
            "sealed_secret": self._seal.close(secret_key.encode(), context=public_key),
            "secret_hash": secret_hash(secret_key.encode()),
        }

    def opened(self, row: Row[Any]) -> bytes:
        """Returns the secret of a row. Raises Broken if it is not the one that was put there."""
        secret = self._seal.open(row.sealed_secret, context=row.public_key)
        if row.secret_hash is not None and row.secret_hash != secret_hash(secret):
            raise Broken(why=f"the secret of {row.public_key} is not the one that was sealed")
        return secret

    def _key(self, row: Row[Any]) -> Key:
        return from_row(Key, row, caller=from_row(Caller, row), secret=self.opened(row))

    def _remember(self, key: Key, *, until: datetime) -> None:
        self._cache[key.public_key] = (key, until)
        while len(self._cache) > _CACHED_KEYS:
            self._cache.popitem(last=False)


def generate(account: str, name: str, *, accepts_v1: bool) -> NewKey:
    return NewKey(
        public_key="sbx-pk-" + _random(26),
        secret_key=random_secret(),
        account=account,
        name=name,
        accepts_v1=accepts_v1,
    )


def random_secret(prefix: str = "sbx-sk-") -> str:
    return prefix + _random(52)


def secret_hash(secret: bytes) -> str:
    """Hashes a secret without salt: it has 260 random bits, nobody can try them all."""
    return hashlib.sha256(secret).hexdigest()


def _random(characters: int) -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(characters))


PREFIX = "sk_"
_TOKEN = re.compile(r"sk_[0-9a-hjkmnp-tv-z]{52}")
# The same inside a header line; programs have tokens of their own that begin with `sk_`.
_IN_A_LINE = re.compile(rb"(?<![0-9A-Za-z_])sk_[0-9a-hjkmnp-tv-z]{52}(?![0-9A-Za-z_])")
_REMEMBERED = 10_000


class BearerTokens:
    """Finds who a token stands for, usually without the database."""

    def __init__(self, keys: Keys, store: Store) -> None:
        self._keys = keys
        self._store = store
        # Public keys by the hash of their token. A stale one does no harm: the key itself is asked.
        self._owners: OrderedDict[str, str] = OrderedDict()

    async def authenticate(self, token: str) -> Caller:
        """Raises Unauthenticated."""
        if _TOKEN.fullmatch(token):
            digest = secret_hash(token.encode())
            public_key = self._owners.get(digest) or await self._find(digest)
            key = None if public_key is None else await self._keys.find(public_key)
            if key is not None and key.caller.bearer_hash == digest:
                return replace(key.caller, came_by_bearer=True)
        raise Unauthenticated(
            why="this bearer token is unknown, or it has ended",
            reason="bad_bearer",
            hint="Make another one: POST /v1/keys/{public_key}/bearer.",
        )

    async def _find(self, digest: str) -> str | None:
        query = select(keys.c.public_key).where(keys.c.bearer_hash == digest)
        found = await self._store.read(lambda conn: conn.execute(query).scalar_one_or_none())
        if found is not None:
            self._owners[digest] = found
            while len(self._owners) > _REMEMBERED:
                self._owners.popitem(last=False)
        return found


def holds_token(line: bytes) -> bool:
    """Says whether a header line has the form of a token in it: whoever reads it can act as its key."""
    return _IN_A_LINE.search(line) is not None


def demand_privacy(
    scheme: str, peer: str | None, headers: Collection[tuple[bytes, bytes]], *, is_trusted_proxy: bool
) -> None:
    """Refuses a token that others could have read on its way. Raises Unauthenticated.

    A proxy's word that its client came by TLS counts only if the operator trusts that proxy. A request from
    this host counts only if no proxy carried it: its own client may be anywhere.
    """
    protocols = [value for name, value in headers if name == b"x-forwarded-proto"]
    is_forwarded = protocols or any(name in (b"x-forwarded-for", b"forwarded") for name, _ in headers)
    if scheme in ("https", "wss") or (peer is None and not is_forwarded):
        return
    if is_forwarded and is_trusted_proxy and protocols == [b"https"]:
        return
    if peer is not None and not is_forwarded and _is_loopback(peer):
        return
    raise Unauthenticated(
        why="a bearer token came over a connection that others can read",
        reason="bearer_in_the_open",
        hint="Use https://, or sign the request. If a token was sent in the open, replace it.",
    )


def _is_loopback(peer: str) -> bool:
    try:
        return ip_address(peer).is_loopback
    except ValueError:
        return False
