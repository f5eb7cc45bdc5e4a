"""A transfer as a value: what moves from where to where, why, and the id by which it is the same transfer.

`read_transfers` gives every transfer once, oldest first, in pages, for those who read a history of millions:
plain tuples from the driver itself. To let SQLAlchemy make rows of them, and a `Transfer` of each row, takes
several times as long, and few of them have to be one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from sqlalchemy import Connection

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.money.amounts import checked_amount

MAX_ID_CHARACTERS = 200
# Two of them still add up within 64 bits.
DIGEST_MODULUS = 1 << 62
# What may leave a delegated budget: kinds of transfers, and how the accounts are called that each may go to.
# Use (a hold becomes a charge, grace a debt), budgets of its own children and the way back up. The operator
# adjusts, and an outside payment that never came is taken back. A kind that is not named here is refused.
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
    # The world outside: the other side of what came in and went out.
    EXTERNAL = "external"
    # The platform's own stock of an asset, the other side of an exchange.
    EXCHANGE = "exchange"


MAY_OVERDRAW = frozenset(AccountKind) - {AccountKind.BUCKET, AccountKind.BUDGET, AccountKind.CARD}


class Phase(StrEnum):
    SINGLE = "single"
    PENDING = "pending"
    POST = "post"
    VOID = "void"


@dataclass(frozen=True, slots=True, kw_only=True)
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
        """Raises; `assert` would not survive `python -O`."""
        checked_amount(self.amount)
        if self.debit == self.credit:
            raise InvalidRequest(field="credit", why="a transfer has two different sides")
        if not 0 < len(self.id) <= MAX_ID_CHARACTERS:
            raise InvalidRequest(field="id", why=f"a transfer's id has 1 to {MAX_ID_CHARACTERS} characters")
        if (self.phase in (Phase.POST, Phase.VOID)) is (self.pending_id is None):
            raise InvalidRequest(field="pending_id", why="named by a post or void, and only by those")

    def content(self) -> tuple[object, ...]:
        """What must be the same for two transfers to be the same; a retry comes later, so not the moment."""
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
        """62 bits that change with any part of it, the moment included."""
        return self.sealed()[0]

    def sealed(self) -> tuple[int, str]:
        """The digest, and the moment as it was written into it."""
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


# One for all: making an encoder costs more than most of what it encodes.
canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, default=dict).encode
quoted = json.encoder.encode_basestring_ascii


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


def may_leave_budget(kind: str, credit: str) -> bool:
    """Whether a transfer of this kind to this account may be made out of a delegated budget."""
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
    """Of `canonical((*content, moment))`, written out.

    Every transfer comes along here, most often after a flush to the disk, when the processor's caches are
    cold and a call costs ten times what it should. `data` is canonical already.
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
        # Not as it was written; the digest will tell.
        return text


def _tidy_postgres(row: Any) -> TransferRow:
    *front, data, at, digest = row
    moment = at.astimezone(UTC).isoformat()
    return TransferRow._make((*front, "{}" if data is None else canonical(data), moment, digest))
