"""Opens, authenticates and revokes wallet sessions. A session is a row; its token only names it.

So a revocation outlives a restart, and a token that was forged with a stolen key still names no session.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from sandboxer.identity.keys import Caller
from sandboxer.identity.sessions import wallets as repository
from sandboxer.identity.sessions.challenges import Challenges, challenge_message
from sandboxer.identity.sessions.tokens import Claims, TokenKeys, bad_token, fingerprint
from sandboxer.identity.sessions.wallets import Wallets
from sandboxer.identity.signatures.evm import recover_evm
from sandboxer.identity.signatures.wallets import Wallet, verify_message, wallet_of
from sandboxer.identity.tables import wallet_sessions, wallets
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Forbidden, NotFound, Unauthenticated, Unavailable
from sandboxer.kernel.ids import new_id
from sandboxer.observe.events import record
from sandboxer.store.engine import Store

LIFETIME = timedelta(seconds=3600)
CAPACITY = 50_000
# A wallet that opens more ends its own oldest one.
CAPACITY_PER_WALLET = 50
_CACHED = 10_000
# A revocation by another process on the same database takes hold within this.
_CACHED_FOR = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChallenge:
    nonce: str
    message: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedSession:
    token: str = field(repr=False)
    # CAIP-10.
    address: str
    account: str
    expires_at: datetime

    @property
    def caller(self) -> Caller:
        return Caller(public_key=self.address, account=self.account)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cached:
    caller: Caller
    expires_at: datetime
    until: datetime
    epoch: int


class WalletSessions:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        tokens: TokenKeys,
        challenges: Challenges,
        wallets: Wallets,
        domain: str,
        allow_test_networks: bool = False,
        lifetime: timedelta = LIFETIME,
        capacity: int = CAPACITY,
        capacity_per_wallet: int = CAPACITY_PER_WALLET,
    ) -> None:
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._challenges = challenges
        self._wallets = wallets
        self._domain = domain
        self._allow_test_networks = allow_test_networks
        self._lifetime = lifetime
        self._capacity = capacity
        self._capacity_per_wallet = capacity_per_wallet
        self._cache: OrderedDict[bytes, _Cached] = OrderedDict()

    async def challenge(self, *, link_to: str | None = None) -> SessionChallenge:
        """Returns what a wallet must sign to sign in or, with `link_to`, to be linked to that account."""
        made = await self._challenges.issue("link" if link_to else "session", account=link_to or "")
        message = challenge_message(made, self._domain)
        return SessionChallenge(nonce=made.nonce, message=message, expires_at=made.expires_at)

    async def open_session(self, nonce: str, signature: str, address: str | None = None) -> OpenedSession:
        """Opens a session for whoever signed the challenge. EVM signatures name their address themselves."""
        # Taken first, whatever follows: nobody gets to try two signatures on one nonce.
        challenge = await self._challenges.take("session", nonce)
        message = challenge_message(challenge, self._domain)
        wallet = wallet_of(recover_evm(message, signature) if address is None else address)
        verify_message(wallet, message, signature)
        return await self.open_for(wallet)

    async def link_wallet(self, account: str, nonce: str, address: str, signature: str) -> Wallet:
        """Makes a wallet another factor of the account that asked for the challenge."""
        challenge = await self._challenges.take("link", nonce)
        if challenge.account != account:
            raise Unauthenticated(
                why="this challenge was handed out to another account",
                reason="bad_nonce",
                hint="Ask for a challenge with the credentials you link with.",
            )
        wallet = self.accepted(wallet_of(address))
        verify_message(wallet, challenge_message(challenge, self._domain), signature)
        now = self._clock.now()
        await self._store.write(lambda conn: repository.link(conn, wallet, account, now))
        return wallet

    async def open_for(self, wallet: Wallet) -> OpenedSession:
        """Opens a session for a wallet that has just proved itself, by whatever message."""
        self.accepted(wallet)
        now = self._clock.now()
        claims = Claims(
            session_id=new_id("ses"),
            address=wallet.caip10,
            issued_at=now,
            expires_at=(now + self._lifetime).replace(microsecond=0),
        )
        account, has_ended_one = await self._store.write(lambda conn: self._insert(conn, wallet, claims))
        if has_ended_one:
            self._wallets.epoch += 1
        return OpenedSession(
            token=self._tokens.seal(claims),
            address=wallet.caip10,
            account=account,
            expires_at=claims.expires_at,
        )

    async def identify(self, wallet: Wallet) -> Caller:
        """Returns the caller for a wallet that has proved itself for one request, without a session."""
        self.accepted(wallet)
        now = self._clock.now()
        account = await self._store.write(lambda conn: repository.account_of(conn, wallet, now))
        return Caller(public_key=wallet.caip10, account=account)

    async def authenticate(self, token: str) -> Caller:
        """Returns who holds this token, or raises Unauthenticated. Usually answered without the database."""
        now = self._clock.now()
        mark = fingerprint(token)
        cached = self._cache.get(mark)
        if cached and min(cached.until, cached.expires_at) > now and cached.epoch == self._wallets.epoch:
            return cached.caller
        self._cache.pop(mark, None)
        claims = self._tokens.open(token, now)
        epoch = self._wallets.epoch
        row = await self._store.read(lambda conn: _live_session(conn, claims, now))
        if row is None:
            raise bad_token()
        caller = Caller(public_key=row.address, account=row.account)
        # What was read before a revocation must not be kept after it.
        if epoch == self._wallets.epoch:
            self._remember(
                mark, _Cached(caller=caller, expires_at=row.expires_at, until=now + _CACHED_FOR, epoch=epoch)
            )
        return caller

    async def revoke(self, token: str) -> bool:
        """Ends a session; returns False if there was none, or it was over. Survives restarts."""
        now = self._clock.now()
        try:
            claims = self._tokens.open(token, now)
        except Unauthenticated:
            return False

        def revoke(conn: Connection) -> bool:
            row = _live_session(conn, claims, now)
            if row is None:
                return False
            conn.execute(update(wallet_sessions).where(wallet_sessions.c.id == row.id).values(revoked_at=now))
            record(
                conn, subject=row.account, kind="session.revoked", actor=row.address, reason="asked", at=now
            )
            return True

        try:
            return await self._store.write(revoke)
        finally:
            self._wallets.epoch += 1

    async def revoke_all(self, address: str) -> int:
        """Ends every session of a wallet (CAIP-10)."""
        now = self._clock.now()
        try:
            return await self._store.write(lambda conn: repository.end_sessions(conn, address, now))
        finally:
            self._wallets.epoch += 1

    async def end_all(self, account: str, *, address: str | None = None, actor: str) -> int:
        """Ends every session of an account, or of one of its wallets; returns how many were open."""
        now = self._clock.now()
        columns = wallet_sessions.c
        which = [columns.account == account, columns.revoked_at.is_(None), columns.expires_at > now]
        if address is not None:
            which.append(columns.address == address)

        def end(conn: Connection) -> int:
            known = select(wallets.c.account).where(wallets.c.address == address)
            if address is not None and conn.execute(known).scalar() != account:
                raise NotFound(what="wallet", id=address)
            ended = conn.execute(update(wallet_sessions).where(*which).values(revoked_at=now)).rowcount
            data = {"ended": ended, "address": address}
            record(
                conn,
                subject=account,
                kind="session.all_revoked",
                actor=actor,
                reason="asked",
                at=now,
                data=data,
            )
            return ended

        try:
            return await self._store.write(end)
        finally:
            self._wallets.epoch += 1

    def accepted(self, wallet: Wallet) -> Wallet:
        if not (wallet.is_mainnet or self._allow_test_networks):
            raise Forbidden(
                why="this platform takes wallets of main networks only",
                reason="test_network",
                hint="Sign with the address of the main network.",
            )
        return wallet

    def _insert(self, conn: Connection, wallet: Wallet, claims: Claims) -> tuple[str, bool]:
        now = claims.issued_at
        conn.execute(delete(wallet_sessions).where(wallet_sessions.c.expires_at <= now))
        account = repository.account_of(conn, wallet, now)
        own = conn.execute(
            select(wallet_sessions.c.id)
            .where(wallet_sessions.c.address == wallet.caip10)
            .order_by(wallet_sessions.c.created_at, wallet_sessions.c.id)
        ).all()
        surplus = [row.id for row in own[: max(0, len(own) + 1 - self._capacity_per_wallet)]]
        conn.execute(delete(wallet_sessions).where(wallet_sessions.c.id.in_(surplus)))
        if conn.execute(select(func.count()).select_from(wallet_sessions)).scalar_one() >= self._capacity:
            raise Unavailable(
                why="too many sessions are open",
                reason="too_many_sessions",
                hint="Retry in a few minutes, or sign requests with an API key.",
            )
        conn.execute(
            insert(wallet_sessions).values(
                id=claims.session_id,
                address=wallet.caip10,
                account=account,
                created_at=now,
                expires_at=claims.expires_at,
                revoked_at=None,
            )
        )
        record(conn, subject=account, kind="session.opened", actor=wallet.caip10, reason="signed_in", at=now)
        return account, bool(surplus)

    def _remember(self, mark: bytes, entry: _Cached) -> None:
        self._cache[mark] = entry
        while len(self._cache) > _CACHED:
            self._cache.popitem(last=False)


def _live_session(conn: Connection, claims: Claims, now: datetime) -> Row[Any] | None:
    """Returns the row that a token names, unless it or its wallet was revoked."""
    query = (
        select(wallet_sessions)
        .join(wallets, wallets.c.address == wallet_sessions.c.address)
        .where(
            wallet_sessions.c.id == claims.session_id,
            wallet_sessions.c.address == claims.address,
            wallet_sessions.c.revoked_at.is_(None),
            wallet_sessions.c.expires_at > now,
            wallets.c.revoked_at.is_(None),
        )
    )
    return conn.execute(query).one_or_none()
