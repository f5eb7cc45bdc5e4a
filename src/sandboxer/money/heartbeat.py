"""The server's sign of life: one small row, and the gaps in time that it makes visible.

While nothing happens nothing else is written: a row every few seconds for the whole server, not one for each
sandbox. Whoever starts next reads from it how long nobody was there, and up to when the last server had
witnessed its sandboxes alive.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from sqlalchemy import Connection, bindparam, func, insert, select, update

from sandboxer.kernel.clock_guard import Beat, is_same_boot
from sandboxer.money.accrual import Gap, GapKind
from sandboxer.money.tables import money_policy, server_beats, time_gaps
from sandboxer.observe.events import events

_NAME = "server"
# A server that was silent for so long could neither take a payment nor stop anything: an outage.
SILENT_FOR = timedelta(seconds=20)
_GAPS_AFTER = (
    select(time_gaps).where(time_gaps.c.ended_at > bindparam("moment")).order_by(time_gaps.c.began_at)
)


def gap_before(last: Beat | None, first: Beat) -> Gap | None:
    """The time between the last server's last sign of life and this one's first. Pure."""
    if last is None or first.moment <= last.moment:
        return None
    kind = GapKind.OUTAGE if is_same_boot(last, first) else GapKind.UNWITNESSED
    return Gap(kind=kind, began_at=last.moment, ended_at=first.moment)


def silence_before(last: Beat | None, beat: Beat) -> Gap | None:
    """A running server that gave no sign of life for long: its database or itself stood still. Pure."""
    if last is None or beat.moment - last.moment <= SILENT_FOR:
        return None
    return Gap(kind=GapKind.OUTAGE, began_at=last.moment, ended_at=beat.moment)


def read_beat(conn: Connection) -> Beat | None:
    row = conn.execute(select(server_beats).where(server_beats.c.name == _NAME)).one_or_none()
    return None if row is None else Beat(moment=row.moment, boot_us=row.boot_us, boot_id=row.boot_id)


def last_recorded(conn: Connection) -> datetime | None:
    """The last thing that a server wrote down which gave no signs of life yet (it was older)."""
    return conn.execute(select(events.c.at).order_by(events.c.id.desc()).limit(1)).scalar()


def last_witnessed(conn: Connection) -> datetime | None:
    """Up to when the last server had its sandboxes in sight, which one that was still opening had not."""
    row = conn.execute(select(server_beats).where(server_beats.c.name == _NAME)).one_or_none()
    return last_recorded(conn) if row is None else row.witnessed_at or row.moment


def begin(conn: Connection, beat: Beat, gap: Gap | None, *, is_witness: bool = False) -> None:
    """A sign of life, and the gap before it.

    `is_witness`: this server has looked at everything, and hears of what ends. One that opens has not.
    """
    if gap is not None:
        record_gap(conn, gap)
    _write(conn, beat, is_witness=is_witness)


def keep(conn: Connection, beat: Beat, *, is_witness: bool) -> Gap | None:
    """The next sign of life. Returns the silence that it ended, if it was long."""
    gap = silence_before(read_beat(conn), beat)
    begin(conn, beat, gap, is_witness=is_witness)
    return gap


def record_gap(conn: Connection, gap: Gap) -> None:
    """From here on nobody settles over it unaware."""
    values = {"kind": gap.kind.value, "began_at": gap.began_at, "ended_at": gap.ended_at}
    conn.execute(insert(time_gaps).inline(), values)
    conn.execute(update(money_policy).values(gaps_until=gap.ended_at))


def _write(conn: Connection, beat: Beat, *, is_witness: bool) -> None:
    values = {"moment": beat.moment, "boot_us": beat.boot_us, "boot_id": beat.boot_id}
    before = func.coalesce(server_beats.c.witnessed_at, server_beats.c.moment)
    seen = None if is_witness else before
    change = update(server_beats).where(server_beats.c.name == _NAME).values(**values, witnessed_at=seen)
    if not conn.execute(change).rowcount:
        first = None if is_witness else last_recorded(conn)
        conn.execute(insert(server_beats).inline(), {"name": _NAME, **values, "witnessed_at": first})


def gaps_after(conn: Connection, moment: datetime) -> tuple[Gap, ...]:
    """Those that end after a moment, in the order they began."""
    found = conn.execute(_GAPS_AFTER, {"moment": moment})
    return tuple(Gap(kind=GapKind(row.kind), began_at=row.began_at, ended_at=row.ended_at) for row in found)
