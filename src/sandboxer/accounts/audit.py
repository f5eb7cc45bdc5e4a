"""The audit log says who did what. It is append-only: each row's hash covers the row and the hash before it.

`verify` finds a row that was edited, deleted, inserted or swapped (the chain breaks there), and rows missing
from the end (the head row knows the newest; so does every checkpoint, which is an event in the event log). It
cannot find by itself that somebody with write access to the whole database rewrote the rows from some point
on, together with the head and the events. Against that, keep a checkpoint outside (`checkpoint`, or the last
line of an export) and give it to `verify` as `anchor`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Connection, Row, insert, select, update

from sandboxer.accounts.records import audit_head, audit_log
from sandboxer.identity.keys import Also, Caller
from sandboxer.kernel.errors import Broken, InvalidRequest
from sandboxer.kernel.values import value_class
from sandboxer.observe.events import events, record
from sandboxer.store.engine import Store
from sandboxer.store.rows import from_row

GENESIS = "0" * 64
CHECKPOINT = "audit.checkpoint"
SUBJECT = "audit"
# A checkpoint event is recorded each time so many rows were added.
CHECKPOINT_EVERY = 50
_PAGE = 500


@value_class
class Entry:
    seq: int
    at: datetime
    actor: str
    action: str
    subject: str
    reason: str
    data: Mapping[str, Any]
    previous: str
    hash: str


@value_class
class Checkpoint:
    """The number of rows, and the hash of the last of them."""

    seq: int
    hash: str


@value_class
class Proof:
    rows: int
    head: Checkpoint
    # The first row that breaks the chain, and why; None: the log is whole.
    broken_at: int | None = None
    why: str | None = None

    @property
    def is_whole(self) -> bool:
        return self.broken_at is None


def append(
    conn: Connection,
    *,
    actor: str,
    action: str,
    subject: str,
    reason: str,
    data: Mapping[str, Any] | None = None,
    now: datetime,
) -> Entry:
    """Append a row, in the transaction of the act that it records."""
    # All writers take this lock, so that there is one chain and the head is up to date.
    head = conn.execute(select(audit_head).where(audit_head.c.id == 1).with_for_update()).one_or_none()
    if head is None:
        raise Broken(why="the head of the audit log is missing")
    # In the form in which it is read back: keys as text, tuples as lists.
    plain = json.loads(_canonical(dict(data or {})))
    seq = head.seq + 1
    fields = {
        "seq": seq,
        "at": now.astimezone(UTC),
        "actor": actor,
        "action": action,
        "subject": subject,
        "reason": reason,
        "data": plain,
    }
    link = _hash(head.hash, fields)
    conn.execute(insert(audit_log), {**fields, "previous": head.hash, "hash": link})
    conn.execute(update(audit_head).where(audit_head.c.id == 1).values(seq=seq, hash=link))
    if seq % CHECKPOINT_EVERY == 0:
        _remember(conn, Checkpoint(seq=seq, hash=link), now)
    return Entry(**fields, previous=head.hash, hash=link)


def by_owner(
    who: Caller,
    action: str,
    *,
    reason: str = "asked",
    data: Mapping[str, Any] | None = None,
    now: datetime,
) -> Also:
    """Return a function that writes the audit row in the transaction of the act itself.

    Only acts of the platform's owner are written; for everyone else it does nothing.
    """

    def write(conn: Connection, subject: str) -> None:
        if who.is_owner:
            actor = f"key:{who.public_key}"
            append(conn, actor=actor, action=action, subject=subject, reason=reason, data=data, now=now)

    return write


async def write_down(
    store: Store, who: Caller, action: str, subjects: Mapping[str, Mapping[str, Any]], *, now: datetime
) -> None:
    """Write a row for each subject of an act of the owner that has no transaction of its own."""

    def write(conn: Connection) -> None:
        for subject, data in subjects.items():
            by_owner(who, action, data=data, now=now)(conn, subject)

    if who.is_owner and subjects:
        await store.write(write)


def checkpoint(conn: Connection, *, now: datetime) -> Checkpoint:
    """Return the head and record it as an event. Keep it elsewhere: `verify` takes it as `anchor`."""
    row = conn.execute(select(audit_head).where(audit_head.c.id == 1)).one()
    head = Checkpoint(seq=row.seq, hash=row.hash)
    _remember(conn, head, now)
    return head


def verify(conn: Connection, *, anchor: Checkpoint | None = None) -> Proof:
    """Check the whole chain. Use it in `store.read`, which sees one snapshot of the database."""
    witnesses = {w.seq: w.hash for w in _checkpoints(conn)}
    if anchor is not None:
        # Set last, because what was kept outside counts more than the events of the same database.
        witnesses[anchor.seq] = anchor.hash
    last = Checkpoint(seq=0, hash=GENESIS)
    for row in _rows(conn):
        if (why := _fault(row, last, witnesses)) is not None:
            return Proof(rows=last.seq, head=last, broken_at=last.seq + 1, why=why)
        last = Checkpoint(seq=row.seq, hash=row.hash)
    head = conn.execute(select(audit_head).where(audit_head.c.id == 1)).one_or_none()
    if (known := max([*witnesses, 0 if head is None else head.seq])) > last.seq:
        why = f"the log ends at row {last.seq}, but there were {known}"
        return Proof(rows=last.seq, head=last, broken_at=last.seq + 1, why=why)
    if head is None or (head.seq, head.hash) != (last.seq, last.hash):
        return Proof(rows=last.seq, head=last, broken_at=last.seq + 1, why="the head names another row")
    return Proof(rows=last.seq, head=last)


def page(conn: Connection, *, after: int = 0, subject: str | None = None, limit: int = 100) -> list[Entry]:
    """Return the rows after a number, oldest first."""
    query = select(audit_log).where(audit_log.c.seq > after).order_by(audit_log.c.seq)
    if subject is not None:
        query = query.where(audit_log.c.subject == subject)
    return [from_row(Entry, row) for row in conn.execute(query.limit(max(1, min(limit, _PAGE))))]


async def export(store: Store) -> AsyncIterator[str]:
    """Yield the whole log, one JSON object a line.

    The last line's `seq` and `hash` can serve as an anchor.
    """
    after = 0
    while True:
        entries = await store.read(_page_reader(after))
        for entry in entries:
            yield _canonical(as_json(entry)) + "\n"
            after = entry.seq
        if len(entries) < _PAGE:
            return


def as_json(entry: Entry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "at": entry.at.astimezone(UTC).isoformat(),
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "reason": entry.reason,
        "data": dict(entry.data),
        "previous": entry.previous,
        "hash": entry.hash,
    }


def verify_export(lines: Iterator[str]) -> Checkpoint:
    """Check an exported file by itself. Raises InvalidRequest naming the first bad row."""
    last = Checkpoint(seq=0, hash=GENESIS)
    for line in lines:
        try:
            fields = json.loads(line)
            previous, link = fields.pop("previous"), fields.pop("hash")
            at = fields.pop("at")
            expected = _hash(previous, {**fields, "at": datetime.fromisoformat(at)})
            follows = (fields["seq"], previous) == (last.seq + 1, last.hash)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise InvalidRequest(field="export", why=f"row {last.seq + 1} cannot be read") from None
        if not follows or expected != link:
            raise InvalidRequest(field="export", why=f"row {last.seq + 1} does not follow the one before it")
        last = Checkpoint(seq=fields["seq"], hash=link)
    return last


def _fault(row: Row[Any], last: Checkpoint, witnesses: Mapping[int, str]) -> str | None:
    if row.seq != last.seq + 1:
        return f"row {last.seq + 1} is missing; row {row.seq} follows"
    if row.previous != last.hash:
        return f"row {row.seq} does not follow row {last.seq}"
    fields = {
        name: getattr(row, name) for name in ("seq", "at", "actor", "action", "subject", "reason", "data")
    }
    if _hash(last.hash, fields) != row.hash:
        return f"row {row.seq} was changed: its hash does not match"
    if witnesses.get(row.seq, row.hash) != row.hash:
        return f"row {row.seq} is not the one that a checkpoint saw"
    return None


def _hash(previous: str, fields: Mapping[str, Any]) -> str:
    row = {**fields, "at": fields["at"].astimezone(UTC).isoformat()}
    return hashlib.sha256(f"{previous}\n{_canonical(row)}".encode()).hexdigest()


def _canonical(value: Mapping[str, Any]) -> str:
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequest(field="data", why=f"it is not plain JSON: {error}") from None


def _rows(conn: Connection) -> Iterator[Row[Any]]:
    last = -(1 << 62)
    while True:
        query = select(audit_log).where(audit_log.c.seq > last).order_by(audit_log.c.seq).limit(_PAGE)
        rows = conn.execute(query).all()
        yield from rows
        if len(rows) < _PAGE:
            return
        last = rows[-1].seq


def _checkpoints(conn: Connection) -> Iterator[Checkpoint]:
    query = select(events.c.data).where(events.c.subject == SUBJECT, events.c.kind == CHECKPOINT)
    for data in conn.execute(query).scalars():
        yield Checkpoint(seq=int(data["seq"]), hash=str(data["hash"]))


def _remember(conn: Connection, head: Checkpoint, now: datetime) -> None:
    data = {"seq": head.seq, "hash": head.hash}
    record(conn, subject=SUBJECT, kind=CHECKPOINT, actor="system:audit", reason="head", at=now, data=data)


def _page_reader(after: int) -> Callable[[Connection], list[Entry]]:
    return lambda conn: page(conn, after=after, limit=_PAGE)
