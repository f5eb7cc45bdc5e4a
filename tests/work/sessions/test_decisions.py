"""How long a session lives, its table of states, and how hostile words are read: all without a sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.backends.guest import Exit, Output, Process, Stream
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import GuestMisbehaved, IllegalTransition, InvalidRequest
from sandboxer.work.languages import TIERS
from sandboxer.work.sessions import records as lifetime
from sandboxer.work.sessions.attached import RATE, Attached
from sandboxer.work.sessions.cells import RESULTS_BYTES, RESULTS_LIMIT, Cell, Done, Lines, Shown, read_frame
from sandboxer.work.sessions.interpreters import INTERPRETERS, driver_text, find_interpreter
from sandboxer.work.sessions.records import LIFECYCLE, TRANSITIONS, Session, Signal, State
from sandboxer.work.sessions.shelf import KEPT_BYTES, KEPT_CELLS, Shelf, ShelfBounds
from tests.support.sessions import a_session

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def fresh_session() -> Session:
    expires = NOW + lifetime.TTL_DEFAULT
    return a_session("acc_1", created_at=NOW, expires_at=expires, idle=lifetime.IDLE_DEFAULT)


def test_every_cell_of_the_table_is_a_move_or_a_refusal() -> None:
    for state in State:
        for signal in Signal:
            if (state, signal) in TRANSITIONS:
                assert LIFECYCLE.next_state(state, signal) is TRANSITIONS[state, signal]
            else:
                with pytest.raises(IllegalTransition):
                    LIFECYCLE.next_state(state, signal)
    assert not any(state is State.ENDED for state, _ in TRANSITIONS)


def test_a_session_ends_after_an_hour_or_fifteen_quiet_minutes() -> None:
    session = fresh_session()

    def due(minutes: float, **how: bool) -> str | None:
        how = {"is_busy": False, "is_frozen": False, **how}
        return lifetime.end_due(session, now=NOW + timedelta(minutes=minutes), **how)

    assert due(14.9) is None
    assert due(15) == "idle"
    assert due(59, is_busy=True) is None
    assert due(59, is_frozen=True) is None
    assert due(60, is_frozen=True) == due(60, is_busy=True) == "ttl"


@given(st.lists(st.floats(0, 3600), max_size=200))
def test_activity_adds_fifteen_minutes_and_never_passes_a_day(waits: list[float]) -> None:
    session, now = fresh_session(), NOW
    for wait in waits:
        now += timedelta(seconds=wait)
        before = session.expires_at
        session = lifetime.bumped(session, now=now)
        assert before <= session.expires_at <= before + lifetime.ACTIVITY_ADDS
        assert session.last_active_at == now
    added = lifetime.TTL_DEFAULT + len(waits) * lifetime.ACTIVITY_ADDS
    assert session.expires_at == NOW + min(lifetime.TTL_MAX, added)


@given(st.binary(max_size=300))
def test_no_line_breaks_the_reader(line: bytes) -> None:
    try:
        read_frame(line)
    except GuestMisbehaved:
        return


@given(
    st.lists(st.binary(max_size=60).filter(lambda line: b"\n" not in line), max_size=8), st.integers(1, 40)
)
def test_lines_come_out_whole_however_they_are_cut(lines: list[bytes], step: int) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    reader = Lines()
    seen = [line for at in range(0, len(whole), step) for line in reader.feed(whole[at : at + step], 0)]
    assert seen == lines


def test_after_a_gap_the_reader_goes_on_at_the_next_line() -> None:
    reader = Lines()
    assert reader.feed(b'{"t":"ready"}\n{"t":"o', 0) == [b'{"t":"ready"}']
    assert reader.feed(b'ken"}\n{"t":"ready"}\n', 512) == [b'{"t":"ready"}']
    with pytest.raises(GuestMisbehaved):
        _feed_without_end(reader)


def _feed_without_end(reader: Lines) -> None:
    for _ in range(10):
        reader.feed(b"x" * (1 << 20), 0)


@pytest.mark.parametrize(
    "line",
    [
        {"t": "out", "n": -1, "s": 1, "d": ""},
        {"t": "out", "n": 1, "s": 9, "d": ""},
        {"t": "out", "n": 1, "s": 1, "d": "%%%"},
        {"t": "done", "n": 1, "status": 0, "fault": [], "lost": [0]},
        {"t": "result", "n": 1, "m": {str(i): "x" for i in range(99)}},
        {"t": "hello", "n": 2**70, "running": None, "ready": True},
    ],
)
def test_lines_out_of_form_are_refused(line: dict[str, object]) -> None:
    with pytest.raises(GuestMisbehaved):
        read_frame(json.dumps(line).encode())


def test_interpreters_are_found_by_any_name_and_others_are_named() -> None:
    assert find_interpreter("py").name == "python"
    assert find_interpreter("node").name == "javascript"
    with pytest.raises(InvalidRequest, match="whole programs only"):
        find_interpreter("fortran")
    with pytest.raises(InvalidRequest, match="nearest is python"):
        find_interpreter("pythn")
    for one in INTERPRETERS.values():
        assert one.language.image in ("base", *TIERS)
        if one.driver:
            assert driver_text(one.driver)


def cell(n: int = 1) -> Cell:
    return Cell(n=n, code="", timeout_s=1.0, asked_at=NOW)


def test_what_a_cell_shows_is_bounded_by_what_it_takes_in_memory() -> None:
    # One rare character makes every letter of the text four bytes wide.
    wide = "x" * (1 << 20) + "\N{GRINNING FACE}"
    shown = cell()
    for _ in range(RESULTS_LIMIT):
        shown.show({"text/plain": wide})
    assert 1 <= len(shown.results()) <= 2
    assert shown.truncated
    assert sum(sys.getsizeof(text) for one in shown.results() for text in one.values()) <= RESULTS_BYTES


class Liar:
    """A process whose words were written by somebody hostile; then it stays and says nothing."""

    process_id = "prc_liar"

    def __init__(self, *said: bytes) -> None:
        self._said = said

    async def __aenter__(self) -> Liar:
        return self

    async def __aexit__(self, *error: object) -> None:
        return

    async def output(self) -> AsyncIterator[Output | Exit]:
        for data in self._said:
            yield Output(Stream.STDOUT, data)
        yield Exit(code=0)

    async def kill(self) -> None:
        return


async def heard(*said: bytes, shelf: Shelf | None = None) -> Attached:
    async def gone(attached: Attached, reason: str, why: str) -> None:
        return

    attached = Attached(
        cast(Process, Liar(*said)),
        SystemClock(),
        kept=(shelf or Shelf()).open("ses_liar", "liar"),
        is_shell=False,
        working=lambda: nullcontext(),
        when_gone=gone,
    )
    await attached.live()
    return attached


async def test_cells_that_begin_and_never_end_do_not_pile_up() -> None:
    begun = (json.dumps({"t": "begin", "n": n, "code": "x" * 1000}) for n in range(1, 2000))
    attached = await heard("\n".join(begun).encode() + b"\n")
    assert len(attached.cells) <= KEPT_CELLS + 1
    assert attached.reason == "killed"


async def test_what_is_said_of_errors_is_bounded_by_what_it_takes_in_memory() -> None:
    # One rare character makes every letter of the text four bytes wide.
    text = "\N{GRINNING FACE}" + "x" * 200_000
    said = []
    for n in range(1, 40):
        fault = {"name": "E", "message": text, "traceback": text}
        said.append({"t": "begin", "n": n, "code": text})
        said.append({"t": "done", "n": n, "status": 1, "fault": fault, "lost": [0, 0]})
    attached = await heard(*(json.dumps(one).encode() + b"\n" for one in said))
    kept = [
        text
        for cell in attached.cells.values()
        if cell.fault is not None
        for text in (cell.code, cell.fault.message, cell.fault.traceback)
    ]
    assert kept
    assert sum(sys.getsizeof(text) for text in kept) <= KEPT_BYTES


async def test_a_line_that_never_ends_is_held_only_while_there_is_room_for_it() -> None:
    shelf = Shelf(ShelfBounds(account_bytes=1 << 20))
    endless = [b"x" * (1 << 18)] * 8
    after = json.dumps({"t": "begin", "n": 7, "code": ""}).encode() + b"\n"
    attached = await heard(*endless, b"\n", after, shelf=shelf)
    assert list(attached.cells) == [7]
    assert shelf.held == attached.cells[7].size


def test_half_a_character_does_not_get_into_an_answer() -> None:
    line = b'{"t":"done","n":1,"status":1,"fault":{"message":"\\ud800","traceback":"\\udfff"},"lost":[0,0]}'
    done = read_frame(line)
    assert isinstance(done, Done)
    assert done.fault is not None
    assert (done.fault.message, done.fault.traceback) == ("?", "?")
    shown = read_frame(b'{"t":"result","n":1,"m":{"a":"\\ud83d"}}')
    assert isinstance(shown, Shown)
    assert shown.mimes == {"a": "?"}


async def test_words_are_read_at_a_limited_rate_and_others_are_served_meanwhile() -> None:
    line = json.dumps({"t": "out", "n": 1, "s": 1, "d": "eHh4" * (1 << 16)}).encode() + b"\n"
    assert len(line) * 20 > RATE
    began, turns = time.monotonic(), 0
    hearing = asyncio.ensure_future(heard(*[line] * 20))
    while not hearing.done():
        turns += 1
        await asyncio.sleep(0)
    await hearing
    assert time.monotonic() - began >= (len(line) * 20 - RATE) / RATE * 0.9
    assert turns > 2


def test_an_endless_number_is_refused_like_any_line_out_of_form() -> None:
    with pytest.raises(GuestMisbehaved):
        read_frame(b'{"t": "died", "code": Infinity}')


def test_a_line_of_many_tiny_values_is_refused_before_it_is_read() -> None:
    """Reading one of five MiB, and showing it, kept everybody waiting for most of a second."""
    for many in (b"0," * 100_000 + b"0", b'"",' * 100_000 + b'""'):
        with pytest.raises(GuestMisbehaved):
            read_frame(b'{"t":"result","n":1,"m":{"a":[' + many + b"]}}")
    text = json.dumps("a,b:[{" * 200_000).encode()
    assert isinstance(read_frame(b'{"t":"result","n":1,"m":{"text/html":' + text + b"}}"), Shown)


HOSTILE = {
    "its words": "class E(Exception):\n    def __str__(self): raise SystemExit(3)\nraise E",
    "its notes": "class E(Exception):\n    @property\n    def __notes__(self): raise SystemExit(3)\nraise E",
    "any of it": "class E(Exception):\n    def __getattribute__(self, name): raise SystemExit(3)\nraise E",
    "its class": "class M(type):\n    def __getattribute__(cls, name): raise SystemExit(3)\n"
    "class E(Exception, metaclass=M): pass\nraise E",
    "its code": "class C:\n    def __eq__(self, other): raise SystemExit(3)\nraise SystemExit(C())",
    "a stream": "import sys\nclass S:\n    def __getattr__(self, name): raise SystemExit(3)\n"
    "sys.stdout = S()\nraise ValueError",
}


@pytest.mark.parametrize("code", HOSTILE.values(), ids=HOSTILE)
def test_an_exception_that_raises_when_it_is_told_of_does_not_end_the_interpreter(code: str) -> None:
    code_out, code_in = os.pipe()
    control_out, control_in = os.pipe()
    words = {**os.environ, "SANDBOXER_CODE": str(code_out), "SANDBOXER_CONTROL": str(control_in)}
    driver = subprocess.Popen(
        [sys.executable, "-c", driver_text("python.py")],
        env=words,
        pass_fds=(code_out, control_in),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(code_out)
    os.close(control_in)
    with os.fdopen(code_in, "wb", buffering=0) as cells, os.fdopen(control_out, "rb") as answers:
        for number, cell in enumerate((code, "x = 1"), start=1):
            cells.write(b"%d %d\n" % (number, len(cell)) + cell.encode())
        cells.close()
        ends = [line for line in answers.read().splitlines() if line.startswith(b"end ")]
    assert driver.wait() == 0
    assert ends == [b"end 0 0", b"end 1 1", b"end 0 2"]
