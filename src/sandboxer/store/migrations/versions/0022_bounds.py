"""What keeps growing tables bounded."""

from collections import defaultdict
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from alembic import op

from sandboxer.store.metadata import UtcDateTime

revision = "0022"
down_revision = "0021"


def upgrade() -> None:
    _spending()
    _collected()
    _lookups()
    _count_transfers_by_themselves()


def _count_transfers_by_themselves() -> None:
    """No AUTOINCREMENT: it is a page more in every commit, and keeps numbers from being used again after a
    deletion, of which there are none here.

    The rows are the same with and without, so only the words of the schema change, in the way SQLite's
    documentation of ALTER TABLE tells for such changes: to copy the ledger could take minutes.
    """
    conn = op.get_bind()
    if conn.dialect.name != "sqlite":
        return
    version = conn.exec_driver_sql("PRAGMA schema_version").scalar_one()
    conn.exec_driver_sql("PRAGMA writable_schema=ON")
    conn.exec_driver_sql(
        "UPDATE sqlite_master SET sql = replace(sql, ' AUTOINCREMENT', '')"
        " WHERE type = 'table' AND name = 'ledger_transfers'"
    )
    conn.exec_driver_sql(f"PRAGMA schema_version={version + 1}")
    conn.exec_driver_sql("PRAGMA writable_schema=OFF")
    conn.exec_driver_sql("DELETE FROM sqlite_sequence WHERE name = 'ledger_transfers'")


def _lookups() -> None:
    """What is looked for by account, or by hearing of all, is found without reading everyone's."""
    op.create_index("ix_quotes_account_expires_at", "quotes", ["account", "expires_at"])
    op.create_index(
        "ix_webhook_endpoints_of_all",
        "webhook_endpoints",
        ["id"],
        sqlite_where=sa.text("hears_all"),
        postgresql_where=sa.text("hears_all"),
    )


def _collected() -> None:
    """What each bucket's meters have been paid: charges and repaid debts, less what was given back."""
    op.add_column(
        "money_buckets", sa.Column("collected_sats", sa.BigInteger, nullable=False, server_default="0")
    )
    for sign, kinds, side in (("+", "'charge', 'repay'", "debit"), ("-", "'refund'", "credit")):
        op.execute(
            f"UPDATE money_buckets SET collected_sats = collected_sats {sign} COALESCE((SELECT SUM(amount)"
            f" FROM ledger_transfers WHERE {side} = 'bucket:' || owner AND kind IN ({kinds})), 0)"
        )


def _spending() -> None:
    """What each key spent, by the day: meters learn who asked for them, and what was used is added up."""
    for table in ("meters", "meter_segments"):
        op.add_column(table, sa.Column("key", sa.Text, nullable=False, server_default=""))
        op.execute(
            f"UPDATE {table} SET key = COALESCE("
            f"(SELECT created_by FROM sandboxes WHERE sandboxes.id = {table}.subject), '')"
        )
    op.create_index(
        "ix_meters_open",
        "meters",
        ["owner"],
        sqlite_where=sa.text("closed_at IS NULL"),
        postgresql_where=sa.text("closed_at IS NULL"),
    )
    days = op.create_table(
        "spent_days",
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
        sa.Column("day", UtcDateTime, nullable=False),
        sa.Column("used_sats", sa.BigInteger, nullable=False),
        sa.Column("used_nsats", sa.BigInteger, nullable=False),
        sa.Column("moved_sats", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("account", "key", "day", name="pk_spent_days"),
    )
    op.create_index("ix_spent_days_account_day", "spent_days", ["account", "day"])
    conn = op.get_bind()
    used, moved = _used_so_far(conn), _moved_so_far(conn)
    rows = [
        {
            "account": account,
            "key": key,
            "day": day,
            "used_sats": used[account, key, day] // 10**9,
            "used_nsats": used[account, key, day] % 10**9,
            "moved_sats": moved[account, key, day],
        }
        for account, key, day in sorted(used.keys() | moved.keys())
    ]
    if rows:
        conn.execute(days.insert(), rows)


_Sums = defaultdict[tuple[str, str, datetime], int]


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)


def _used_so_far(conn: sa.Connection) -> _Sums:
    """In nanosats, from the segments."""
    columns = ("owner", "key", "rate_msats", "msats")
    moments = (sa.column("began_at", UtcDateTime), sa.column("ended_at", UtcDateTime))
    segments: Any = sa.select(*(sa.column(name) for name in columns), *moments).select_from(
        sa.table("meter_segments")
    )
    sums: _Sums = defaultdict(int)
    for row in conn.execute(segments):
        began = row.began_at
        while began < row.ended_at and row.rate_msats:
            until = min(row.ended_at, _midnight(began) + timedelta(days=1))
            us = (until - began) // timedelta(microseconds=1)
            sums[row.owner, row.key, _midnight(began)] += row.rate_msats * us
            began = until
        if row.msats:
            sums[row.owner, row.key, _midnight(row.ended_at)] += row.msats * 10**6
    return sums


def _moved_so_far(conn: sa.Connection) -> _Sums:
    """In sats: budgets given by the key that cut the child, less what came back; a gift's is unknown."""
    names = ("debit", "credit", "amount", "kind", "phase")
    transfers: Any = (
        sa.select(*(sa.column(name) for name in names), sa.column("at", UtcDateTime))
        .select_from(sa.table("ledger_transfers"))
        .where(sa.column("kind").in_(("delegate", "delegate_return", "gift")))
        .where(sa.column("phase").in_(("single", "post")))
    )
    children = sa.text("SELECT account, parent, cut_by FROM delegated_keys")
    cut_by = {f"bucket:{row.account}": (row.parent, row.cut_by) for row in conn.execute(children)}
    sums: _Sums = defaultdict(int)
    for row in conn.execute(transfers):
        day = _midnight(row.at)
        if row.kind == "delegate" and row.credit in cut_by:
            sums[(*cut_by[row.credit], day)] += row.amount
        elif row.kind == "delegate_return" and row.debit in cut_by:
            sums[(*cut_by[row.debit], day)] -= row.amount
        elif row.kind == "gift" and row.debit.startswith("bucket:"):
            sums[row.debit.removeprefix("bucket:"), "", day] += row.amount
    return sums
