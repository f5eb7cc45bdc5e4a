"""The ledger moves money by double entry. Transfers are immutable, and the same id is the same transfer.

Each account row carries running totals, kept in the transfer's own transaction by a statement that refuses to
spend what is not there. So a transfer costs two statements and a balance one, however long the history.

The ledger also restricts delegated budgets: what `may_leave_budget` does not allow is Forbidden for everyone.

An error other than InsufficientCredit, Forbidden, NotFound or Conflict means a bug. After those four nothing
of the refused transfer is left in the transaction, so a caller may go on.

An exchange turns one asset into another by two transfers at a locked rate, in one transaction.

A transfer never crosses assets, so the platform stands between the two with a stock of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from sqlalchemy import Connection, Insert, Row, Table, bindparam, delete, select, update

from sandboxer.kernel.errors import (
    Broken,
    Conflict,
    Forbidden,
    InsufficientCredit,
    InvalidRequest,
    NotFound,
    or_not_found,
)
from sandboxer.kernel.program import late
from sandboxer.kernel.values import value_class
from sandboxer.money.amounts import checked_amount
from sandboxer.money.tables import ledger_accounts, ledger_pendings, ledger_transfers
from sandboxer.money.transfers import (
    DIGEST_MODULUS,
    MAY_OVERDRAW,
    AccountKind,
    Asset,
    Phase,
    Transfer,
    canonical,
    may_leave_budget,
    transfer_of,
)
from sandboxer.store.databases import as_sqlalchemy_raises, insert_unless_there

if TYPE_CHECKING:
    import psycopg
else:
    psycopg = late("psycopg")

# The platform's own accounts in sats.
INCOME = "income:usage"
LOSS = "loss:uncollected"
EXTERNAL = "external:operator"
PLATFORM = {INCOME: AccountKind.INCOME, LOSS: AccountKind.LOSS, EXTERNAL: AccountKind.EXTERNAL}


@value_class
class Balance:
    posted: int
    # Reserved by pending transfers out of it; announced by pending transfers into it.
    held: int
    incoming: int

    @property
    def available(self) -> int:
        return self.posted - self.held


def open_account(
    conn: Connection,
    *,
    id: str,
    kind: AccountKind,
    owner: str = "",
    asset: Asset = Asset.SATS,
    now: datetime,
) -> bool:
    """Open a ledger account; False if it was open already.

    Raises Conflict if it is open as something else.
    """
    row = {
        "id": id,
        "kind": kind.value,
        "asset": asset.value,
        "owner": owner,
        "may_overdraw": kind in MAY_OVERDRAW,
        "debits_posted": 0,
        "credits_posted": 0,
        "debits_pending": 0,
        "credits_pending": 0,
        "transfers": 0,
        "digest": 0,
        "created_at": now,
    }
    if insert_once(conn, ledger_accounts, row):
        return True
    found = _account(conn, id)
    if (found.kind, found.asset, found.owner) != (kind.value, asset.value, owner):
        raise Conflict(why=f"the account {id} is open already as another kind, asset or owner")
    return False


def open_platform_accounts(conn: Connection, *, now: datetime) -> None:
    for id, kind in PLATFORM.items():
        open_account(conn, id=id, kind=kind, now=now)


def post_transfer(conn: Connection, transfer: Transfer) -> bool:
    """Move money (`single`) or reserve it (`pending`). False if this very transfer was made before.

    Raises InsufficientCredit if the debit side may not go below zero and would, Forbidden if it is a budget
    that this may not leave, Conflict if the id belongs to another transfer, NotFound for an account that is
    not open in this asset.
    """
    if transfer.phase is Phase.SINGLE:
        step = (transfer.amount, 0)
    elif transfer.phase is Phase.PENDING:
        step = (0, transfer.amount)
    else:
        raise InvalidRequest(field="phase", why="a pending transfer is resolved by its id")
    digest, moment = transfer.sealed()
    moved, is_kept = _move_and_keep(conn, transfer, step, digest, moment)
    if moved != 2:
        if moved:
            _undo_half(conn, transfer, step, digest)
        if _is_known(conn, transfer):
            return False
        raise _why_not(conn, transfer)
    if not is_kept:
        _undo(conn, transfer, step, digest)
        if not _is_known(conn, transfer):
            raise Broken(why=f"the transfer {transfer.id} was neither written nor found")
        return False
    if transfer.phase is Phase.PENDING:
        conn.execute(
            ledger_pendings.insert(),
            {"id": transfer.id, "debit": transfer.debit, "amount": transfer.amount},
        )
    return True


def void_pending(conn: Connection, pending_id: str, *, reason: str, now: datetime) -> bool:
    """Give up a pending transfer; all of it is free again. False if that was done before."""
    if (pending := find_transfer(conn, pending_id)) is None or pending.phase is not Phase.PENDING:
        raise NotFound(what="pending transfer", id=pending_id)
    resolution = replace(
        pending,
        id=f"{pending_id}:{Phase.VOID.value}",
        phase=Phase.VOID,
        pending_id=pending_id,
        reason=reason,
        at=now,
        data={},
    )
    digest, moment = resolution.sealed()
    mine = delete(ledger_pendings).where(ledger_pendings.c.id == pending_id)
    if conn.execute(mine).rowcount != 1:
        if find_transfer(conn, resolution.id) is None:
            raise Conflict(why=f"the pending transfer {pending_id} was resolved otherwise")
        return False
    if _move_and_keep(conn, resolution, (0, -pending.amount), digest, moment) != (2, True):
        raise Broken(why=f"the totals of its accounts do not hold the pending transfer {pending_id}")
    return True


def is_pending(conn: Connection, pending_id: str) -> bool:
    query = select(ledger_pendings.c.id).where(ledger_pendings.c.id == pending_id)
    return conn.execute(query).one_or_none() is not None


def balance(conn: Connection, account_id: str) -> Balance:
    row = _account(conn, account_id)
    return Balance(
        posted=row.credits_posted - row.debits_posted,
        held=row.debits_pending,
        incoming=row.credits_pending,
    )


def find_transfer(conn: Connection, transfer_id: str) -> Transfer | None:
    row = conn.execute(_BY_ID, {"wanted": transfer_id}).one_or_none()
    return None if row is None else from_row(row)


def from_row(row: Row[Any]) -> Transfer:
    return transfer_of(row, at=row.at, data=row.data or {})


# What a transfer adds to the posted and to the pending totals of both its sides.
_Step: TypeAlias = tuple[int, int]


@cache
def _insert_once(dialect: str, table: Table) -> Insert:
    insert = insert_unless_there(dialect, table)
    # Otherwise the driver's count is lost with its cursor.
    return insert.on_conflict_do_nothing().inline().execution_options(preserve_rowcount=True)


def insert_once(conn: Connection, table: Table, row: Mapping[str, object]) -> bool:
    """Insert the row, or return False if a row with its key is there."""
    return conn.execute(_insert_once(conn.dialect.name, table), row).rowcount == 1


# In the driver's own words: these are the hot lines of the ledger, and building them by SQLAlchemy costs more
# than the database takes to carry them out. Values go by their place: to look them up by name costs as much
# as to write the row. "& mask" is "modulo 2⁶²".
_MASK = DIGEST_MODULUS - 1
_ROW = tuple(column.name for column in ledger_transfers.columns if column.name != "seq")
# SQLite is a function call away, and looks for one row in a fifth of the time it takes to look for two.
_SQLITE_TAKE = f"""
UPDATE ledger_accounts SET
  debits_posted = debits_posted + ?, debits_pending = debits_pending + ?,
  transfers = transfers + 1, digest = (digest + ?) & {_MASK}
WHERE id = ? AND asset = ?
  AND (may_overdraw OR credits_posted - debits_posted - debits_pending >= ?)
  AND (kind <> 'budget' OR ?)
"""
_SQLITE_GIVE = f"""
UPDATE ledger_accounts SET
  credits_posted = credits_posted + ?, credits_pending = credits_pending + ?,
  transfers = transfers + 1, digest = (digest + ?) & {_MASK}
WHERE id = ? AND asset = ?
"""
_SQLITE_KEEP = f"""
INSERT INTO ledger_transfers ({", ".join(_ROW)}) VALUES ({", ".join("?" for _ in _ROW)})
ON CONFLICT DO NOTHING
"""
# PostgreSQL is a network away: all at once. What was not moved is not kept. The row's values come first.
_PLACE = {name: f"${number}" for number, name in enumerate((*_ROW, "posted", "pending", "leaves"), start=1)}
_PLACE |= {name: f"{_PLACE[name]}::bigint" for name in ("posted", "pending")}
_PLACE |= {"leaves": f"{_PLACE['leaves']}::boolean"}
_TYPED = {"at": f"{_PLACE['at']}::timestamptz", "data": f"{_PLACE['data']}::json"}
_POSTGRES_MOVE_AND_KEEP = """
WITH moved AS (
  UPDATE ledger_accounts SET
    debits_posted = debits_posted + CASE WHEN id = {debit} THEN {posted} ELSE 0 END,
    debits_pending = debits_pending + CASE WHEN id = {debit} THEN {pending} ELSE 0 END,
    credits_posted = credits_posted + CASE WHEN id = {credit} THEN {posted} ELSE 0 END,
    credits_pending = credits_pending + CASE WHEN id = {credit} THEN {pending} ELSE 0 END,
    transfers = transfers + 1,
    digest = (digest + {digest}) & {mask}
  WHERE id IN ({debit}, {credit}) AND asset = {asset}
    AND (id <> {debit} OR may_overdraw
      OR credits_posted - debits_posted - debits_pending >= {posted} + {pending})
    AND (id <> {debit} OR ledger_accounts.kind <> 'budget' OR {leaves})
  RETURNING 1
), kept AS (
  INSERT INTO ledger_transfers ({columns}) SELECT {values} WHERE (SELECT count(*) FROM moved) = 2
  ON CONFLICT DO NOTHING RETURNING 1
)
SELECT (SELECT count(*) FROM moved), (SELECT count(*) FROM kept)
""".format(
    **_PLACE,
    mask=_MASK,
    columns=", ".join(_ROW),
    values=", ".join((_PLACE | _TYPED)[name] for name in _ROW),
)
_CURSOR = "sandboxer.ledger"
_BY_ID = select(ledger_transfers).where(ledger_transfers.c.id == bindparam("wanted"))


def _move_and_keep(
    conn: Connection, transfer: Transfer, step: _Step, digest: int, moment: str
) -> tuple[int, bool]:
    """Move both sides and write the transfer. Returns how many sides moved, and whether the id was free."""
    driver: Any = conn.connection.dbapi_connection
    try:
        if conn.dialect.name == "postgresql":
            leaves = may_leave_budget(transfer.kind, transfer.credit)
            return _move_on_postgres(conn, driver, (*_row(transfer, digest, moment), *step, leaves))
        return _move_on_sqlite(driver, transfer, step, digest, moment)
    except Exception as error:
        raise as_sqlalchemy_raises(conn, "transfer", error) from error


def _move_on_postgres(conn: Connection, driver: Any, values: tuple[object, ...]) -> tuple[int, bool]:
    # One cursor for the life of the connection: to make one takes as long as to tell it the statement.
    cursor: Any = conn.info.get(_CURSOR)
    if cursor is None:
        cursor = conn.info[_CURSOR] = psycopg.RawCursor(driver)
    moved, kept = cursor.execute(_POSTGRES_MOVE_AND_KEEP, values, binary=True).fetchone()
    return moved, kept == 1


def _move_on_sqlite(
    driver: Any, transfer: Transfer, step: _Step, digest: int, moment: str
) -> tuple[int, bool]:
    posted, pending = step
    asset = transfer.asset._value_
    leaves = may_leave_budget(transfer.kind, transfer.credit)
    take = (posted, pending, digest, transfer.debit, asset, posted + pending, leaves)
    if driver.execute(_SQLITE_TAKE, take).rowcount != 1:
        return 0, False
    give = (posted, pending, digest, transfer.credit, asset)
    if driver.execute(_SQLITE_GIVE, give).rowcount != 1:
        return 1, False
    # As the column's type writes it: without the zone, always with microseconds.
    at = f"{moment[:10]} {moment[11:26] if len(moment) == 32 else moment[11:19] + '.000000'}"
    return 2, driver.execute(_SQLITE_KEEP, _row(transfer, digest, at)).rowcount == 1


def _row(transfer: Transfer, digest: int, at: str) -> tuple[object, ...]:
    """In the order of the columns."""
    return (
        transfer.id,
        transfer.debit,
        transfer.credit,
        transfer.amount,
        # Not `value`, which in an enum is a function.
        transfer.asset._value_,
        transfer.kind,
        transfer.phase._value_,
        transfer.pending_id,
        transfer.reason,
        at,
        canonical(transfer.data) if transfer.data else None,
        digest,
    )


def _undo(conn: Connection, transfer: Transfer, step: _Step, digest: int, *, only: str | None = None) -> None:
    """Undo the movement on both sides, or only on the account `only`."""
    account = ledger_accounts.c
    mine = {transfer.debit: ("debits_posted", "debits_pending")}
    mine |= {transfer.credit: ("credits_posted", "credits_pending")}
    for id, names in mine.items():
        if only in (None, id):
            back = {name: account[name] - amount for name, amount in zip(names, step, strict=True)}
            back |= {"transfers": account.transfers - 1}
            back |= {"digest": (account.digest + (-digest) % DIGEST_MODULUS).bitwise_and(_MASK)}
            conn.execute(update(ledger_accounts).where(account.id == id).values(back))


def _undo_half(conn: Connection, transfer: Transfer, step: _Step, digest: int) -> None:
    """Undo the movement of the one side that was moved."""
    query = select(ledger_accounts.c.asset).where(ledger_accounts.c.id == transfer.credit)
    is_credited = conn.execute(query).scalar() == transfer.asset.value
    moved = transfer.credit if is_credited else transfer.debit
    _undo(conn, transfer, step, digest, only=moved)


def _is_known(conn: Connection, transfer: Transfer) -> bool:
    found = find_transfer(conn, transfer.id)
    if found is not None and found.content() != transfer.content():
        raise Conflict(why=f"the transfer id {transfer.id} was already used for another transfer")
    return found is not None


def _why_not(conn: Connection, transfer: Transfer) -> Exception:
    for side in (transfer.credit, transfer.debit):
        row = _account(conn, side)
        if row.asset != transfer.asset.value:
            return InvalidRequest(field="asset", why=f"{side} is in {row.asset}, not {transfer.asset}")
    if row.kind == AccountKind.BUDGET and not may_leave_budget(transfer.kind, transfer.credit):
        return Forbidden(
            why="a delegated budget pays for use, for budgets below it and back to its parent, nothing else",
            reason="delegated_budget",
            hint="Pay from the account that gave the budget.",
        )
    free = row.credits_posted - row.debits_posted - row.debits_pending
    return InsufficientCredit(required=transfer.amount, available=max(0, free), account=row.owner)


def _account(conn: Connection, account_id: str) -> Row[Any]:
    return or_not_found(
        conn.execute(select(ledger_accounts).where(ledger_accounts.c.id == account_id)).one_or_none(),
        what="ledger account",
        id=account_id,
    )


@value_class
class LockedRate:
    """A fixed rate: one unit of `sold` buys `units` of `bought`, exactly."""

    sold: Asset
    bought: Asset
    units: Fraction

    def convert(self, amount: int) -> int:
        """Convert an amount, rounded down: the platform never gives a unit it was not paid for."""
        return int(checked_amount(amount) * self.units)


def exchange(
    conn: Connection,
    *,
    id: str,
    debit: str,
    credit: str,
    amount: int,
    rate: LockedRate,
    reason: str,
    now: datetime,
) -> int:
    """Take `amount` from `debit`, give its worth to `credit`; returns that worth. The same id exchanges once.

    If `credit` is a bucket, call `settle_account` for its owner afterwards.
    """
    worth = rate.convert(amount)
    if rate.sold is rate.bought or worth <= 0:
        raise InvalidRequest(field="amount", why=f"{amount} {rate.sold} buy no {rate.bought} at this rate")
    data = {"rate": str(rate.units), "sold": rate.sold.value, "bought": rate.bought.value}
    stock = {asset: f"exchange:{asset.value}" for asset in (rate.sold, rate.bought)}
    for asset, account in stock.items():
        open_account(conn, id=account, kind=AccountKind.EXCHANGE, asset=asset, now=now)
    halves = (
        (f"{id}:sold", debit, stock[rate.sold], amount, rate.sold),
        (f"{id}:bought", stock[rate.bought], credit, worth, rate.bought),
    )
    for half, giver, taker, sum_, asset in halves:
        post_transfer(
            conn,
            Transfer(
                id=half,
                debit=giver,
                credit=taker,
                amount=sum_,
                asset=asset,
                kind="exchange",
                reason=reason,
                at=now,
                data=data,
            ),
        )
    return worth
