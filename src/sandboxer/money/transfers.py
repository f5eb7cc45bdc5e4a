"""A transfer is a value: what moves from where to where, why, and the id by which it is the same transfer.

`read_transfers` yields every transfer once, oldest first, as plain tuples of the driver. Making SQLAlchemy
rows and `Transfer` values of millions of them would take several times as long.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Connection

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import checked_amount

MAX_ID_CHARACTERS = 200
# So small that two digests add up within 64 bits.
DIGEST_MODULUS = 1 << 62
# What may leave a delegated budget: kinds of transfers, and the prefixes of the accounts that each may go to.
# A budget pays for use, for budgets of its own children, and back to its parent. The operator may adjust it,
# and an outside payment that never came is taken back. Every other kind is refused.
_OUT_OF_A_BUDGET: Mapping[str, tuple[str, ...]] = {
    "charge": ("income:usage",),
    "hold": ("income:usage",),
    "repay": ("debt:",),
    "delegate": ("bucket:",),
    "delegate_return": ("bucket:",),
    "reversal": ("external:", "unconfirmed:", "frozen:"),
    "adjust": ("adjustments:",),
}
_PAGE = 5_000
_COLUMNS = "seq, id, debit, credit, amount, asset, kind, phase, pending_id, reason, data, at, digest"
_QUERIES = {
    dialect: f"SELECT {_COLUMNS} FROM ledger_transfers WHERE seq > {mark} ORDER BY seq LIMIT {_PAGE}"
    for dialect, mark in (("sqlite", "?"), ("postgresql", "%s"))
}


class Asset(StrEnum):
    SATS = "sats"
    USD_CENTS = "usd_cents"


class AccountKind(StrEnum):
    # What an owner may spend: never below zero.
    BUCKET = "bucket"
    # What was cut from a bucket for a delegated key: never below zero, and only what `may_leave_budget`
    # allows goes out of it.
    BUDGET = "budget"
    # What an owner owes for grace: zero or below.
    DEBT = "debt"
    # A gift card or another prepaid thing in its own asset: never below zero.
    CARD = "card"
    # What the platform earned; a refund after a payout may take it below zero.
    INCOME = "income"
    # What could not be collected.
    LOSS = "loss"
    # Outside money: the other side of what came in and went out.
    EXTERNAL = "external"
    # The platform's own stock of an asset, the other side of an exchange.
    EXCHANGE = "exchange"


MAY_OVERDRAW = frozenset(AccountKind) - {AccountKind.BUCKET, AccountKind.BUDGET, AccountKind.CARD}


class Phase(StrEnum):
    SINGLE = "single"
    PENDING = "pending"
    POST = "post"
    VOID = "void"


@value_class
class Transfer:
    # Chosen before the call: a retry with the same id is the same transfer.
    id: str
    debit: str
    credit: str
    amount: int
    kind: str
    reason: str
    at: datetime
    asset: Asset = Asset.SATS
    phase: Phase = Phase.SINGLE
    pending_id: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the transfer by raising; an `assert` would not survive `python -O`."""
        checked_amount(self.amount)
        if self.debit == self.credit:
            raise InvalidRequest(field="credit", why="a transfer has two different sides")
        if not 0 < len(self.id) <= MAX_ID_CHARACTERS:
            raise InvalidRequest(field="id", why=f"a transfer's id has 1 to {MAX_ID_CHARACTERS} characters")
        if (self.phase in (Phase.POST, Phase.VOID)) is (self.pending_id is None):
            raise InvalidRequest(field="pending_id", why="named by a post or void, and only by those")

    def content(self) -> tuple[object, ...]:
        """Return all that makes two transfers the same: everything but the moment, as a retry comes later."""
        return (
            self.id,
            self.debit,
            self.credit,
            self.amount,
            self.asset.value,
            self.kind,
            self.phase.value,
            self.pending_id,
            self.reason,
            dict(self.data),
        )

    def digest(self) -> int:
        """Return 62 bits that change with any part of the transfer, the moment included."""
        return self.sealed()[0]

    def sealed(self) -> tuple[int, str]:
        """Return the digest, and the text of the moment that went into it."""
        moment = (self.at if self.at.tzinfo is UTC else self.at.astimezone(UTC)).isoformat()
        data = canonical(dict(self.data)) if self.data else "{}"
        digest = digest_of(
            self.id,
            self.debit,
            self.credit,
            self.amount,
            self.asset,
            self.kind,
            self.phase,
            self.pending_id,
            self.reason,
            data,
            moment,
        )
        return digest, moment


# One encoder for all: making one costs more than most of what it encodes.
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=dict).encode
quoted = json.encoder.encode_basestring_ascii


class TransferRow(NamedTuple):
    """A stored transfer; its fields, `data` and `moment` have the order and form in which the digest takes
    them.
    """

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
        """Convert the row. Raises InvalidRequest or ValueError if it is not a valid transfer."""
        return transfer_of(self, at=datetime.fromisoformat(self.moment), data=json.loads(self.data))


def transfer_of(row: Any, *, at: datetime, data: Mapping[str, Any]) -> Transfer:
    """Return the transfer of a row with these columns."""
    return Transfer(
        id=row.id,
        debit=row.debit,
        credit=row.credit,
        amount=row.amount,
        asset=Asset(row.asset),
        kind=row.kind,
        phase=Phase(row.phase),
        pending_id=row.pending_id,
        reason=row.reason,
        at=at,
        data=data,
    )


def may_leave_budget(kind: str, credit: str) -> bool:
    """Return whether a transfer of this kind to this account may leave a delegated budget."""
    return credit.startswith(_OUT_OF_A_BUDGET.get(kind, ()))


def digest_of(
    id: str,
    debit: str,
    credit: str,
    amount: int,
    asset: str,
    kind: str,
    phase: str,
    pending_id: str | None,
    reason: str,
    data: str,
    moment: str,
) -> int:
    """Return the digest of `canonical((*content, moment))`, whose JSON is written out here for speed.

    Every transfer passes here, most often after a flush to the disk, when the processor's caches are cold and
    each call is expensive. `data` is canonical already.
    """
    resolves = "null" if pending_id is None else quoted(pending_id)
    text = (
        f"[{quoted(id)},{quoted(debit)},{quoted(credit)},{amount:d},{quoted(asset)},{quoted(kind)},"
        f'{quoted(phase)},{resolves},{quoted(reason)},{data},"{moment}"]'
    )
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) % DIGEST_MODULUS


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
        # Not JSON any more: somebody changed it, and the digest will show that.
        return text


def _tidy_postgres(row: Any) -> TransferRow:
    *front, data, at, digest = row
    moment = at.astimezone(UTC).isoformat()
    return TransferRow._make((*front, "{}" if data is None else canonical(data), moment, digest))
