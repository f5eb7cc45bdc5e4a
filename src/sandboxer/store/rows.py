"""Maps the rows of a table to frozen values, and has the few statements and pages of lists that every noun
needs. A noun's own queries are written beside its value and read through `all` and `one`.

The caller owns the transaction. Nothing is decided here. Pages are newest first: a cursor names the last row
seen, so that new rows move nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    Table,
    Update,
    and_,
    bindparam,
    func,
    insert,
    null,
    or_,
    select,
    update,
)

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import value_class


class Recorded(Protocol):
    """Names the fields that the record of every noun has."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def id(self) -> str: ...
    # Grows by one with every write; a write from an older version is refused.
    @property
    def version(self) -> int: ...
    @property
    def account(self) -> str: ...
    @property
    def state(self) -> Any: ...
    @property
    def reason(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...


@value_class
class Record:
    """What the record of every noun holds, beside its state."""

    id: str
    # Grows by one with every write; a write from an older version is refused.
    version: int = 0
    # Who may see it, and the key that asked for it.
    account: str
    created_by: str
    # Why it is in its state: the reason of its last step.
    reason: str
    created_at: datetime


R = TypeVar("R", bound=Recorded)
V = TypeVar("V")
# Of those that a word could mean, so many are listed.
MOST_MEANT = 10


@value_class
class Cell:
    """Converts between a field and its column, where the column does not hold the value as it is."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    # Where its name differs from the field's.
    column: str = ""


def _same(value: Any) -> Any:
    return value


MAPPING = Cell(write=dict, read=_same)
TUPLE = Cell(write=list, read=tuple)


def enumerated(kind: type[Enum]) -> Cell:
    return Cell(write=lambda member: member.value, read=kind)


def parts(kind: type[Any]) -> Cell:
    """Stores a value of plain parts as a JSON object."""
    names = tuple(one.name for one in fields(kind))
    return Cell(
        write=lambda value: {name: getattr(value, name) for name in names}, read=lambda kept: kind(**kept)
    )


def seconds(column: str) -> Cell:
    return Cell(
        column=column,
        write=lambda value: value.total_seconds(),
        read=lambda kept: timedelta(seconds=kept),
    )


def optional(cell: Cell) -> Cell:
    """Stores None as NULL."""
    write, read = cell.write, cell.read
    return Cell(
        column=cell.column,
        write=lambda value: None if value is None else write(value),
        read=lambda kept: None if kept is None else read(kept),
    )


def from_row(kind: Callable[..., V], row: Row[Any], /, **others: Any) -> V:
    """Returns the frozen value with what the row has under the same names, and with `others`: what the row
    has under other names or in another form.
    """
    cells = row._mapping
    names = kind.__dataclass_fields__  # type: ignore[attr-defined]
    return kind(**{name: cells[name] for name in names if name in cells} | others)


class Rows(Generic[R]):
    """Reads and writes the rows of one noun. `prefix` is what their ids begin with, `over` the states in
    which nothing is left of one. `derived` are columns that follow from the whole record and are not
    fields of it. Fields in `unread` are large: they are None in what is read here.
    """

    def __init__(
        self,
        table: Table,
        record: type[R],
        *,
        prefix: str,
        over: Iterable[Enum],
        cells: Mapping[str, Cell] | None = None,
        derived: Mapping[str, Callable[[R], Any]] | None = None,
        unread: Collection[str] = (),
    ) -> None:
        self.table = table
        self.prefix = prefix
        self._id_length = len(prefix) + 26
        self.over = frozenset(over)
        self.is_left = table.c.state.not_in([one.value for one in self.over])
        self._record = record
        self._cells = cells or {}
        self._unread = dict.fromkeys(unread)
        self._derived = derived or {}
        self._names = tuple(record.__dataclass_fields__)
        self._plain = tuple(name for name in self._names if name not in self._cells)
        self._columns = {name: cell.column or name for name, cell in self._cells.items()}
        self._insert = insert(table).inline()
        # Of a table that holds more than the record: no column that nobody asked for.
        self.select = select(
            *(table.c[self._columns.get(name, name)] for name in self._names if name not in self._unread)
        )
        self._load = self.select.where(table.c.id == bindparam("wanted_id"))
        # One statement for each set of columns: building another each time costs more than the write.
        self._updates: dict[tuple[str, ...], Update] = {}

    def insert(self, conn: Connection, record: R) -> None:
        conn.execute(self._insert, self._to_row(record))

    def replace(self, conn: Connection, before: R, after: R) -> bool:
        """Writes what differs. Returns False, and changes nothing, if someone else wrote first."""
        row: dict[str, Any] = {}
        for name in self._names:
            value = getattr(after, name)
            if value is not getattr(before, name):
                cell = self._cells.get(name)
                row[self._columns.get(name, name)] = value if cell is None else cell.write(value)
        for name, derive in self._derived.items():
            row[name] = derive(after)
        fence = {"fence_id": before.id, "fence_version": before.version}
        values = {f"new_{name}": value for name, value in row.items()}
        return conn.execute(self._update(tuple(row)), {**fence, **values}).rowcount == 1

    def load(self, conn: Connection, id: str, *, lock: bool = False) -> R | None:
        """Returns the record. With `lock`, nobody else decides about it before this transaction ends."""
        query = self._load.with_for_update() if lock else self._load
        row = conn.execute(query, {"wanted_id": id}).one_or_none()
        return None if row is None else self.read(row)

    def one(self, conn: Connection, *where: ColumnElement[bool]) -> R | None:
        row = conn.execute(self.select.where(*where)).one_or_none()
        return None if row is None else self.read(row)

    def all(self, conn: Connection, query: Select[Any]) -> list[R]:
        return [self.read(row) for row in conn.execute(query)]

    def where(self, conn: Connection, *where: ColumnElement[bool]) -> list[R]:
        return self.all(conn, self.select.where(*where))

    def page(
        self,
        conn: Connection,
        query: Select[Any],
        *,
        cursor: str | None,
        limit: int,
        oldest_first: bool = False,
    ) -> Page[R]:
        """Newest first, unless they are wanted the other way round."""
        found = self.all(
            conn, by_age(query, self.table, cursor=cursor, limit=limit, oldest_first=oldest_first)
        )
        return Page(records=found[:limit], next_cursor=next_cursor(found, limit))

    def matching(self, **wanted: object) -> Select[Any]:
        """Asks for the rows whose columns have these values; None stands for any value."""
        given = {name: value for name, value in wanted.items() if value is not None}
        plain = {name: value.value if isinstance(value, Enum) else value for name, value in given.items()}
        return self.select.where(*(self.table.c[name] == value for name, value in plain.items()))

    def living(self, conn: Connection, account: str | None = None) -> list[R]:
        """Returns all records of which something may be left, of one account or (None) of all."""
        mine = () if account is None else (self.table.c.account == account,)
        return self.where(conn, self.is_left, *mine)

    def counts(self, conn: Connection, account: str | None = None) -> dict[str, int]:
        """Counts the records of one account or (None) of all by state. States without any are left out."""
        state, mine = self.table.c.state, () if account is None else (self.table.c.account == account,)
        query = select(state, func.count()).where(*mine).group_by(state)
        return {word: int(number) for word, number in conn.execute(query)}

    def owners(self, conn: Connection, subjects: Iterable[str]) -> dict[str, str]:
        """Returns the account of each subject that is a record of this noun."""
        wanted = [subject for subject in subjects if subject.startswith(self.prefix)]
        if not wanted:
            return {}
        id_, account = self.table.c.id, self.table.c.account
        return {row.id: row.account for row in conn.execute(select(id_, account).where(id_.in_(wanted)))}

    def meant(
        self, conn: Connection, word: str, *, account: str, sees_all: bool, ended_too: bool = False
    ) -> list[tuple[str, str]]:
        """Returns id and name of what a word may mean, at most `MOST_MEANT` of them: the beginning of ids of
        what the account may see, or the name of what is its own, also for who sees all. Names are chosen by
        people: what a stranger calls his own must never be taken for somebody else's.

        Of what is over nothing is meant, unless its record is of use (`ended_too`) or nothing else fits; nor
        by a name what has lost it to another. Of several that are over and had a name, it means the last.
        """
        table, mine = self.table.c, self.table.c.account == account
        name = table.get("name", null())
        if word.startswith(self.prefix):
            # Full ids lie between it and itself filled up with the last letter, whatever the collation.
            fits = table.id.between(word, word.ljust(self._id_length, "z"))
            where = [fits, table.id.startswith(word, autoescape=True)]
            where += [] if sees_all else [or_(mine, *self.usable_by(account))]
        else:
            where = [mine, name == word, self.is_left]
        first = (self.is_left if word.startswith(self.prefix) else self.has_name()).label("comes_first")
        query = select(table.id, name, first).where(*where).limit(MOST_MEANT)
        found = conn.execute(query.order_by(first.desc(), table.created_at.desc())).all()
        living = found if ended_too else [row for row in found if row.comes_first]
        over = found if word.startswith(self.prefix) else found[:1]
        return [(row[0], row[1] or "") for row in living or over]

    def has_name(self) -> ColumnElement[bool]:
        """Says which rows still have the name that they were given."""
        return self.is_left

    def usable_by(self, account: str) -> Sequence[ColumnElement[bool]]:
        """Says which rows of others an account may find."""
        return ()

    def read(self, row: Row[Any]) -> R:
        cells = row._mapping
        values = {name: cells[name] for name in self._plain if name not in self._unread}
        for name, cell in self._cells.items():
            values[name] = cell.read(cells[self._columns[name]])
        return self._record(**values, **self._unread)

    def _to_row(self, record: R) -> dict[str, Any]:
        row = {name: getattr(record, name) for name in self._plain}
        for name, cell in self._cells.items():
            row[self._columns[name]] = cell.write(getattr(record, name))
        for name, derive in self._derived.items():
            row[name] = derive(record)
        return row

    def _update(self, columns: tuple[str, ...]) -> Update:
        known = self._updates.get(columns)
        if known is None:
            table = self.table
            is_as_seen = (
                table.c.id == bindparam("fence_id"),
                table.c.version == bindparam("fence_version"),
            )
            values = {name: bindparam(f"new_{name}", type_=table.c[name].type) for name in columns}
            known = self._updates[columns] = update(table).where(*is_as_seen).values(values)
        return known


R_co = TypeVar("R_co", covariant=True)


@value_class
class Page(Generic[R_co]):
    records: Sequence[R_co]
    # Give it back to see what follows; None at the end.
    next_cursor: str | None


class Listed(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...


def by_age(
    query: Select[Any], table: Table, *, cursor: str | None, limit: int, oldest_first: bool
) -> Select[Any]:
    """Asks for one row more than `limit`, for `next_cursor`. The table has `created_at` and `id`."""
    made, id_ = table.c.created_at, table.c.id
    if cursor is not None:
        at, last_id = _open_cursor(cursor)
        beside = and_(made == at, id_ > last_id if oldest_first else id_ < last_id)
        query = query.where(or_(made > at if oldest_first else made < at, beside))
    order = (made, id_) if oldest_first else (made.desc(), id_.desc())
    return query.order_by(*order).limit(limit + 1)


def next_cursor(found: Sequence[Listed], limit: int) -> str | None:
    """Returns the cursor of the next page; None if this was the last."""
    if len(found) <= limit:
        return None
    last = found[limit - 1]
    text = json.dumps([last.created_at.isoformat(), last.id])
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _open_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        at, last_id = json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        moment = datetime.fromisoformat(at)
        if moment.tzinfo is None or not isinstance(last_id, str):
            raise ValueError("not a cursor of ours")
    except (binascii.Error, ValueError, TypeError, RecursionError):
        raise InvalidRequest(field="cursor", why="it is not a cursor that this list returned") from None
    return moment, last_id
