"""The chain, and whoever tampers with it by raw SQL."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from functools import partial

import pytest
from sqlalchemy import Connection, Engine, create_engine, text

from sandboxer.accounts import audit
from sandboxer.accounts.audit import CHECKPOINT_EVERY, Checkpoint
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.store.engine import Store
from tests.support.accounts import NOW, later


def add(conn: Connection, number: int, **data: object) -> audit.Entry:
    return audit.append(
        conn,
        actor="key:op",
        action="account.adjust",
        subject=f"acc_{number}",
        reason="because",
        data={"number": number, **data},
        now=later(number),
    )


def fill(conn: Connection, rows: int = 10, first: int = 1) -> None:
    for number in range(first, first + rows):
        add(conn, number)


def test_an_untouched_log_is_whole_and_counts_from_one(conn: Connection) -> None:
    assert audit.verify(conn).is_whole
    fill(conn)
    proof = audit.verify(conn)
    assert proof.is_whole
    assert proof.rows == 10
    assert [entry.seq for entry in audit.page(conn, limit=500)] == list(range(1, 11))
    assert [entry.seq for entry in audit.page(conn, subject="acc_3")] == [3]


def test_what_is_read_is_what_was_told(conn: Connection) -> None:
    reported = add(conn, 1, nested={"ü": [1, None, True, "\u2028"], "b": 1.5}, tuple=(1, 2))
    assert audit.page(conn) == [reported]
    assert audit.verify(conn).is_whole


def test_what_is_not_json_is_refused_before_anything_is_written(conn: Connection) -> None:
    for bad in (object(), float("nan"), b"x"):
        with pytest.raises(InvalidRequest):
            add(conn, 1, bad=bad)
    assert audit.verify(conn).rows == 0


SWAP = [
    "UPDATE audit_log SET seq = 1000 WHERE seq = 4",
    "UPDATE audit_log SET seq = 4 WHERE seq = 5",
    "UPDATE audit_log SET seq = 5 WHERE seq = 1000",
]
INSERTED = (
    "INSERT INTO audit_log (seq, at, actor, action, subject, reason, data, previous, hash) SELECT {seq}, at,"
    " actor, action, subject, reason, data, 'x', hash FROM audit_log WHERE seq = 4"
)


@pytest.mark.parametrize(
    ("statements", "broken_at"),
    [
        (["UPDATE audit_log SET reason = 'other' WHERE seq = 4"], 4),
        (["UPDATE audit_log SET actor = 'other' WHERE seq = 1"], 1),
        (["UPDATE audit_log SET data = '{}' WHERE seq = 10"], 10),
        (["UPDATE audit_log SET hash = previous WHERE seq = 4"], 4),
        (["DELETE FROM audit_log WHERE seq = 4"], 4),
        (["DELETE FROM audit_log WHERE seq = 1"], 1),
        (["DELETE FROM audit_log WHERE seq = 4", "UPDATE audit_log SET seq = seq - 1 WHERE seq = 5"], 4),
        (SWAP, 4),
        (["DELETE FROM audit_log WHERE seq = 5", INSERTED.format(seq=5)], 5),
        ([INSERTED.format(seq=11)], 11),
        ([INSERTED.format(seq=0)], 1),
        ([INSERTED.format(seq=-7)], 1),
    ],
)
def test_an_edit_a_deletion_an_insertion_and_a_swap_are_named_by_their_first_row(
    conn: Connection, statements: list[str], broken_at: int
) -> None:
    fill(conn)
    for statement in statements:
        conn.execute(text(statement))
    proof = audit.verify(conn)
    assert not proof.is_whole
    assert proof.broken_at == broken_at
    assert proof.why


def test_a_cut_tail_is_known_from_the_head(conn: Connection) -> None:
    fill(conn)
    conn.execute(text("DELETE FROM audit_log WHERE seq > 7"))
    proof = audit.verify(conn)
    assert (proof.broken_at, proof.rows) == (8, 7)


def cut_tail_and_mend_the_head(conn: Connection, rows: int) -> None:
    conn.execute(text(f"DELETE FROM audit_log WHERE seq > {rows}"))
    conn.execute(
        text(f"UPDATE audit_head SET seq = {rows}, hash = (SELECT hash FROM audit_log WHERE seq = {rows})")
    )


def test_a_cut_tail_with_a_mended_head_is_known_from_the_checkpoints_among_the_events(
    conn: Connection,
) -> None:
    fill(conn, CHECKPOINT_EVERY + 5)
    cut_tail_and_mend_the_head(conn, CHECKPOINT_EVERY - 1)
    assert audit.verify(conn).broken_at == CHECKPOINT_EVERY


def test_who_can_rewrite_the_whole_database_is_known_only_from_an_anchor_kept_outside(
    conn: Connection,
) -> None:
    fill(conn, CHECKPOINT_EVERY + 5)
    anchor = audit.checkpoint(conn, now=NOW)
    conn.execute(text("DELETE FROM events"))
    cut_tail_and_mend_the_head(conn, 20)
    # Said in the module: this is what the database alone cannot show.
    assert audit.verify(conn).is_whole
    assert audit.verify(conn, anchor=anchor).broken_at == 21
    for number in range(21, anchor.seq + 3):
        add(conn, number, forged=True)
    assert audit.verify(conn).broken_at is None
    assert audit.verify(conn, anchor=anchor).broken_at == anchor.seq


def test_an_anchor_of_an_untouched_log_holds_while_it_grows(conn: Connection) -> None:
    fill(conn, 5)
    anchor = audit.checkpoint(conn, now=NOW)
    assert anchor == Checkpoint(seq=5, hash=audit.page(conn)[-1].hash)
    fill(conn, 5)
    assert audit.verify(conn, anchor=anchor).is_whole


def test_a_missing_head_is_noticed(conn: Connection) -> None:
    fill(conn, 3)
    conn.execute(text("DELETE FROM audit_head"))
    assert not audit.verify(conn).is_whole


def test_a_refused_act_leaves_no_trace_of_itself(engine: Engine) -> None:
    def act_and_fail() -> None:
        with engine.begin() as conn:
            add(conn, 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        act_and_fail()
    with engine.begin() as conn:
        add(conn, 2)
        assert audit.verify(conn).is_whole


async def test_an_export_is_json_lines_that_prove_themselves(store: Store) -> None:
    # In pieces: on a busy machine one transaction of them all takes longer than the store waits for one.
    for first in range(1, 1203, 401):
        await store.write(partial(fill, rows=401, first=first))
    lines = [line async for line in audit.export(store)]
    head = audit.verify_export(iter(lines))
    assert head.seq == len(lines) == 1203
    assert await store.read(lambda conn: audit.verify(conn, anchor=head).is_whole)
    assert json.loads(lines[4])["data"] == {"number": 5}


def _edited(lines: list[str]) -> None:
    lines[3] = lines[3].replace("because", "forgery")


def _swapped(lines: list[str]) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def _garbled(lines: list[str]) -> None:
    lines[3] = "[]\n"


@pytest.mark.parametrize("tamper", [_edited, _swapped, _garbled, lambda lines: lines.pop(3)])
async def test_a_tampered_export_is_refused(store: Store, tamper: Callable[[list[str]], None]) -> None:
    await store.write(lambda conn: fill(conn, 10))
    lines = [line async for line in audit.export(store)]
    tamper(lines)
    with pytest.raises(InvalidRequest, match="row"):
        audit.verify_export(iter(lines))


def test_many_writers_make_one_chain(engine: Engine) -> None:
    """On PostgreSQL without our own write lock: the head row alone must serialise them."""
    is_postgres = engine.dialect.name == "postgresql"
    raw = create_engine(engine.url) if is_postgres else engine
    errors: list[Exception] = []

    def write(number: int) -> None:
        try:
            for turn in range(10):
                with raw.begin() as conn:
                    add(conn, number * 100 + turn)
        except Exception as error:
            errors.append(error)

    writers = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert not errors
    with engine.begin() as conn:
        proof = audit.verify(conn)
    assert (proof.is_whole, proof.rows) == (True, 80)
    if is_postgres:
        raw.dispose()
