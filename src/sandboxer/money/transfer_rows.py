"""Every transfer once, oldest first, in pages: for those who read a history of millions.

Plain tuples from the driver itself. To let SQLAlchemy make rows of them, and a `Transfer` of each row, takes
several times as long, and few of them have to be one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import Connection

from sandboxer.money.transfers import Asset, Phase, Transfer, canonical

_PAGE = 5_000
_COLUMNS = "seq, id, debit, credit, amount, asset, kind, phase, pending_id, reason, data, at, digest"
_QUERIES = {
    dialect: f"SELECT {_COLUMNS} FROM ledger_transfers WHERE seq > {mark} ORDER BY seq LIMIT {_PAGE}"
    for dialect, mark in (("sqlite", "?"), ("postgresql", "%s"))
}


class TransferRow(NamedTuple):
    """As it is kept; `data` and `moment` as the digest takes them, and all of it in the digest's order."""

    seq: int
    id: str
    debit: str
    credit: str
    amount: int
    asset: str
    kind: str
    phase: str
    pending_id: str | None
    reason: str
    data: str
    moment: str
    digest: int

    def as_transfer(self) -> Transfer:
        """Raises InvalidRequest or ValueError for what is none."""
        return Transfer(
            id=self.id,
            debit=self.debit,
            credit=self.credit,
            amount=self.amount,
            asset=Asset(self.asset),
            kind=self.kind,
            phase=Phase(self.phase),
            pending_id=self.pending_id,
            reason=self.reason,
            at=datetime.fromisoformat(self.moment),
            data=json.loads(self.data),
        )


def read_transfers(conn: Connection) -> Iterator[TransferRow]:
    query = _QUERIES[conn.dialect.name]
    tidy = _tidy_sqlite if conn.dialect.name == "sqlite" else _tidy_postgres
    last = 0
    while True:
        page = conn.exec_driver_sql(query, (last,)).all()
        for row in page:
            yield tidy(row)
        if len(page) < _PAGE:
            return
        last = page[-1][0]


def _tidy_sqlite(row: Any) -> TransferRow:
    *front, data, at, digest = row
    # Kept without its zone and always with microseconds; `isoformat` says the one and leaves out zeros.
    fraction = "" if at[19:] == ".000000" else at[19:]
    moment = f"{at[:10]}T{at[11:19]}{fraction}+00:00"
    return TransferRow._make((*front, "{}" if data is None else _in_one_form(data), moment, digest))


def _in_one_form(text: str) -> str:
    try:
        return canonical(json.loads(text))
    except ValueError:
        # Not as it was written; the digest will tell.
        return text


def _tidy_postgres(row: Any) -> TransferRow:
    *front, data, at, digest = row
    moment = at.astimezone(UTC).isoformat()
    return TransferRow._make((*front, "{}" if data is None else canonical(data), moment, digest))
