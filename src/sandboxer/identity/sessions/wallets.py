"""Says which account a wallet acts for. The first sign-in opens one; others are linked by a signature."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from sandboxer.identity.keys import Also
from sandboxer.identity.signatures.wallets import Wallet
from sandboxer.identity.tables import wallet_sessions, wallets
from sandboxer.kernel.clock import Clock
from sandboxer.kernel.errors import Conflict, NotFound, Unauthenticated
from sandboxer.kernel.values import new_id, value_class
from sandboxer.observe.events import record
from sandboxer.store.engine import Store

MAX_PER_ACCOUNT = 50


@value_class
class KnownWallet:
    # CAIP-10.
    address: str
    account: str
    created_at: datetime
    revoked_at: datetime | None


class Wallets:
    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        # Grows with every revocation: what was cached before is looked up again.
        self.epoch = 0

    async def of_account(self, account: str) -> list[KnownWallet]:
        """Returns the wallets of an account, oldest first, revoked ones included."""
        query = (
            select(wallets)
            .where(wallets.c.account == account)
            .order_by(wallets.c.created_at, wallets.c.address)
        )
        return [_known(row) for row in await self._store.read(lambda conn: conn.execute(query).all())]

    async def find(self, address: str) -> KnownWallet | None:
        query = select(wallets).where(wallets.c.address == address)
        row = await self._store.read(lambda conn: conn.execute(query).one_or_none())
        return None if row is None else _known(row)

    async def revoke(self, account: str, address: str, *, actor: str, also: Also | None = None) -> None:
        """Revokes a wallet: it cannot sign in any more and its sessions end. Twice is no error; others'
        wallets are not found.

        `also` is written in the same transaction: what ends with the wallet.
        """
        now = self._clock.now()

        def revoke(conn: Connection) -> None:
            row = conn.execute(select(wallets).where(wallets.c.address == address)).one_or_none()
            if row is None or row.account != account:
                raise NotFound(what="wallet", id=address)
            if row.revoked_at is not None:
                return
            conn.execute(update(wallets).where(wallets.c.address == address).values(revoked_at=now))
            end_sessions(conn, address, now)
            data = {"address": address}
            record(
                conn, subject=account, kind="wallet.revoked", actor=actor, reason="asked", at=now, data=data
            )
            if also is not None:
                also(conn, address)

        try:
            await self._store.write(revoke)
        finally:
            self.epoch += 1


def account_of(conn: Connection, wallet: Wallet, now: datetime) -> str:
    """Returns the account of a wallet that proved itself, and opens one if it is new. Runs in a write
    transaction.
    """
    row = conn.execute(select(wallets).where(wallets.c.address == wallet.caip10)).one_or_none()
    if row is None:
        account = new_id("acc")
        _insert(conn, wallet, account, now, reason="first_sign_in")
        return account
    if row.revoked_at is not None:
        raise Unauthenticated(
            why="this wallet was revoked",
            reason="wallet_revoked",
            hint="Use another wallet or an API key of the account.",
        )
    return str(row.account)


def link(conn: Connection, wallet: Wallet, account: str, now: datetime) -> None:
    """Gives a wallet that proved itself to an account. Repeating it is no error; taking over another's is."""
    row = conn.execute(select(wallets).where(wallets.c.address == wallet.caip10)).one_or_none()
    if row is not None and (row.account != account or row.revoked_at is not None):
        raise Conflict(
            why="this wallet cannot be linked: it was used here before",
            reason="wallet_known",
            hint="Sign in with it, or link one that never signed in here.",
        )
    if row is not None:
        return
    count = len(conn.execute(select(wallets.c.address).where(wallets.c.account == account)).all())
    if count >= MAX_PER_ACCOUNT:
        raise Conflict(
            why=f"an account has at most {MAX_PER_ACCOUNT} wallets",
            reason="too_many_wallets",
            hint="Use one of those that are linked.",
        )
    _insert(conn, wallet, account, now, reason="signed")


def end_sessions(conn: Connection, address: str, now: datetime) -> int:
    ended = conn.execute(
        update(wallet_sessions)
        .where(wallet_sessions.c.address == address, wallet_sessions.c.revoked_at.is_(None))
        .values(revoked_at=now)
    )
    return ended.rowcount


def _insert(conn: Connection, wallet: Wallet, account: str, now: datetime, *, reason: str) -> None:
    address = wallet.caip10
    conn.execute(insert(wallets).values(address=address, account=account, created_at=now, revoked_at=None))
    data = {"address": address}
    record(conn, subject=account, kind="wallet.linked", actor=address, reason=reason, at=now, data=data)


def _known(row: Row[Any]) -> KnownWallet:
    return KnownWallet(
        address=row.address, account=row.account, created_at=row.created_at, revoked_at=row.revoked_at
    )
