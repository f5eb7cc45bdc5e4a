"""Opens, authenticates and revokes wallet sessions. A session is a row; its token only names it.

So a revocation outlives a restart, and a token that was forged with a stolen key still names no session.

A wallet, and a network of addresses, may have so many sessions; one more ends its own oldest. There is no
number for all together: strangers would fill it, and nobody else could sign in.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, func, insert, select, update

from sandboxer.identity.keys import Caller
from sandboxer.identity.sessions import wallets as repository
from sandboxer.identity.sessions.challenges import Challenges, challenge_message
from sandboxer.identity.sessions.tokens import Claims, TokenKeys, bad_token, fingerprint
from sandboxer.identity.sessions.wallets import Wallets
from sandboxer.identity.signatures.wallets import Wallet, recover_evm, verify_message, wallet_of
from sandboxer.identity.tables import wallet_sessions, wallets
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Forbidden, NotFound, Unauthenticated
from sandboxer.kernel.values import new_id, value_class
from sandboxer.observe.events import record
from sandboxer.store.engine import Store

LIFETIME = timedelta(seconds=3600)
CAPACITY_PER_WALLET = 50
# As many as eight of its addresses can open in the hour for which a session lasts.
CAPACITY_PER_NETWORK = 5_000
_CACHED = 10_000
# A revocation by another process on the same database takes hold within this.
_CACHED_FOR = timedelta(seconds=60)


@value_class
class SessionChallenge:
    nonce: str
    message: str
    expires_at: datetime


@value_class
class OpenedSession:
    token: str = field(repr=False)
    # CAIP-10.
    address: str
    account: str
    expires_at: datetime

    @property
    def caller(self) -> Caller:
        return Caller(public_key=self.address, account=self.account)


@value_class
class _Cached:
    caller: Caller
    expires_at: datetime
    until: datetime
    epoch: int


@dataclass(slots=True, eq=False, repr=False)
class WalletSessions:
    store: Store
    clock: Clock
    tokens: TokenKeys
    challenges: Challenges
    wallets: Wallets
    domain: str
    allow_test_networks: bool = False
    lifetime: timedelta = LIFETIME
    capacity_per_wallet: int = CAPACITY_PER_WALLET
    capacity_per_network: int = CAPACITY_PER_NETWORK
    _cache: OrderedDict[bytes, _Cached] = field(default_factory=OrderedDict)

    async def challenge(self, *, link_to: str | None = None) -> SessionChallenge:
        """Returns what a wallet must sign to sign in or, with `link_to`, to be linked to that account."""
        if link_to is None:
            made = self.challenges.seal("session")
        else:
            made = await self.challenges.issue("link", account=link_to)
        message = challenge_message(made, self.domain)
        return SessionChallenge(nonce=made.nonce, message=message, expires_at=made.expires_at)

    async def open_session(
        self, nonce: str, signature: str, address: str | None = None, *, network: str = ""
    ) -> OpenedSession:
        """Opens a session for whoever signed the challenge. EVM signatures name their address themselves.
        `network` is the one from which it was asked for.
        """
        # Taken first, whatever follows: nobody gets to try two signatures on one nonce.
        challenge = await self.challenges.take("session", nonce)
        message = challenge_message(challenge, self.domain)
        wallet = wallet_of(recover_evm(message, signature) if address is None else address)
        verify_message(wallet, message, signature)
        return await self.open_for(wallet, network=network)

    async def link_wallet(self, account: str, nonce: str, address: str, signature: str) -> Wallet:
        """Makes a wallet another factor of the account that asked for the challenge."""
        challenge = await self.challenges.take("link", nonce)
        if challenge.account != account:
            raise Unauthenticated(
                why="this challenge was handed out to another account",
                reason="bad_nonce",
                hint="Ask for a challenge with the credentials you link with.",
            )
        wallet = self.accepted(wallet_of(address))
        verify_message(wallet, challenge_message(challenge, self.domain), signature)
        now = self.clock.now()
        await self.store.write(lambda conn: repository.link(conn, wallet, account, now))
        return wallet

    async def open_for(self, wallet: Wallet, *, network: str = "") -> OpenedSession:
        """Opens a session for a wallet that has just proved itself, by whatever message."""
        self.accepted(wallet)
        now = self.clock.now()
        claims = Claims(
            session_id=new_id("ses"),
            address=wallet.caip10,
            issued_at=now,
            expires_at=(now + self.lifetime).replace(microsecond=0),
        )
        account, has_ended_some = await self.store.write(
            lambda conn: self._insert(conn, wallet, claims, network)
        )
        if has_ended_some:
            self.wallets.epoch += 1
        return OpenedSession(
            token=self.tokens.seal(claims),
            address=wallet.caip10,
            account=account,
            expires_at=claims.expires_at,
        )

    async def identify(self, wallet: Wallet) -> Caller:
        """Returns the caller for a wallet that has proved itself for one request, without a session."""
        self.accepted(wallet)
        now = self.clock.now()
        account = await self.store.write(lambda conn: repository.account_of(conn, wallet, now))
        return Caller(public_key=wallet.caip10, account=account)

    async def authenticate(self, token: str) -> Caller:
        """Returns who holds this token, or raises Unauthenticated. Usually answered without the database."""
        now = self.clock.now()
        mark = fingerprint(token)
        cached = self._cache.get(mark)
        if cached and min(cached.until, cached.expires_at) > now and cached.epoch == self.wallets.epoch:
            return cached.caller
        self._cache.pop(mark, None)
        claims = self.tokens.open(token, now)
        epoch = self.wallets.epoch
        if (row := await self.store.read(lambda conn: _live_session(conn, claims, now))) is None:
            raise bad_token()
        caller = Caller(public_key=row.address, account=row.account)
        # What was read before a revocation must not be kept after it.
        if epoch == self.wallets.epoch:
            self._remember(
                mark, _Cached(caller=caller, expires_at=row.expires_at, until=now + _CACHED_FOR, epoch=epoch)
            )
        return caller

    async def revoke(self, token: str) -> bool:
        """Ends a session; returns False if there was none, or it was over. Survives restarts."""
        now = self.clock.now()
        try:
            claims = self.tokens.open(token, now)
        except Unauthenticated:
            return False

        def revoke(conn: Connection) -> bool:
            if (row := _live_session(conn, claims, now)) is None:
                return False
            conn.execute(update(wallet_sessions).where(wallet_sessions.c.id == row.id).values(revoked_at=now))
            record(
                conn, subject=row.account, kind="session.revoked", actor=row.address, reason="asked", at=now
            )
            return True

        try:
            return await self.store.write(revoke)
        finally:
            self.wallets.epoch += 1

    async def revoke_all(self, address: str) -> int:
        """Ends every session of a wallet (CAIP-10)."""
        now = self.clock.now()
        try:
            return await self.store.write(lambda conn: repository.end_sessions(conn, address, now))
        finally:
            self.wallets.epoch += 1

    async def end_all(self, account: str, *, address: str | None = None, actor: str) -> int:
        """Ends every session of an account, or of one of its wallets; returns how many were open."""
        now = self.clock.now()
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
            return await self.store.write(end)
        finally:
            self.wallets.epoch += 1

    def accepted(self, wallet: Wallet) -> Wallet:
        if not (wallet.is_mainnet or self.allow_test_networks):
            raise Forbidden(
                why="this platform takes wallets of main networks only",
                reason="test_network",
                hint="Sign with the address of the main network.",
            )
        return wallet

    def _insert(self, conn: Connection, wallet: Wallet, claims: Claims, network: str) -> tuple[str, bool]:
        now = claims.issued_at
        conn.execute(delete(wallet_sessions).where(wallet_sessions.c.expires_at <= now))
        account = repository.account_of(conn, wallet, now)
        columns = wallet_sessions.c
        ended = _make_room(conn, columns.address == wallet.caip10, self.capacity_per_wallet)
        if network:
            ended += _make_room(conn, columns.network == network, self.capacity_per_network)
        conn.execute(
            insert(wallet_sessions).values(
                id=claims.session_id,
                address=wallet.caip10,
                account=account,
                created_at=now,
                expires_at=claims.expires_at,
                revoked_at=None,
                network=network,
            )
        )
        record(conn, subject=account, kind="session.opened", actor=wallet.caip10, reason="signed_in", at=now)
        return account, bool(ended)

    def _remember(self, mark: bytes, entry: _Cached) -> None:
        self._cache[mark] = entry
        while len(self._cache) > _CACHED:
            self._cache.popitem(last=False)


def _make_room(conn: Connection, of: ColumnElement[bool], capacity: int) -> int:
    """Ends the oldest of these sessions, so that one more can be opened; returns how many."""
    if (surplus := conn.execute(select(func.count()).where(of)).scalar_one() + 1 - capacity) <= 0:
        return 0
    columns = wallet_sessions.c
    oldest = select(columns.id).where(of).order_by(columns.created_at, columns.id).limit(surplus)
    return conn.execute(delete(wallet_sessions).where(columns.id.in_(oldest))).rowcount


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
