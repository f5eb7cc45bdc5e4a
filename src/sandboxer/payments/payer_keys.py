"""The key that a paying wallet gets with its answer, where its account has none yet. Shown once."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, select

from sandboxer.identity.keys import Keys, NewKey, generate
from sandboxer.identity.keys import keys as key_table
from sandboxer.identity.tables import wallets
from sandboxer.payments import records
from sandboxer.payments.records import Payment


def key_for_payer(conn: Connection, keys: Keys, payment: Payment, *, now: datetime) -> NewKey | None:
    """None: the account has or had a key, or the payer paid for somebody else's account.

    Who revoked the last one asks for another by the front door (POST /v1/keys), where it must be confirmed.
    """
    wallet = payment.wallet
    own = select(wallets.c.account).where(wallets.c.address == wallet, wallets.c.revoked_at.is_(None))
    if conn.execute(own).scalar() != payment.account:
        return None
    ever = select(key_table.c.public_key).where(key_table.c.account == payment.account)
    if conn.execute(ever).first() is not None:
        return None
    new = generate(payment.account, f"paid by {payment.payer}"[:200], accepts_v1=False)
    keys.insert(conn, new, actor=wallet)
    records.note(conn, payment.id, now=now, details={"key": new.public_key})
    return new
