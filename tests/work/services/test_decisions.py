"""What is decided about services, without any: the table, restarts, sleep, and lines cut from output."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.backends.guest import Exit, Guest, Output, Stream
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.errors import IllegalTransition
from sandboxer.sandboxes import lifecycle
from sandboxer.work.services.dependencies import ServiceDependencies
from sandboxer.work.services.lifecycle import (
    LIFECYCLE,
    PORTS,
    TRANSITIONS,
    Policy,
    Restart,
    SandboxStatus,
    Signal,
    Spec,
    State,
    after_exit,
    next_port,
    sandbox_status,
    sleeps_at,
    spec_from_json,
)
from sandboxer.work.services.logs import MAX_FILE_BYTES, LineCutter, ServiceLog
from sandboxer.work.services.processes import AT_ONCE, LINE_COSTS, RATE, Pump

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def test_every_step_is_in_the_table_or_refused() -> None:
    for state in State:
        for signal in Signal:
            if (state, signal) in TRANSITIONS:
                assert LIFECYCLE.next_state(state, signal) is TRANSITIONS[state, signal]
            else:
                with pytest.raises(IllegalTransition):
                    LIFECYCLE.next_state(state, signal)
    assert not any(state is State.REMOVED for state, _ in TRANSITIONS)
    assert all((state, Signal.REMOVE) in TRANSITIONS for state in State if state is not State.REMOVED)


def test_pauses_double_until_it_is_given_up() -> None:
    restart = Restart(backoff_s=1, backoff_max_s=5, max_crashes=4, window_s=100)
    crashes: tuple[datetime, ...] = ()
    pauses = []
    for _ in range(4):
        after = after_exit(restart, crashes, is_failure=True, now=NOW)
        assert after.signal is Signal.EXITED
        assert after.restart_at is not None
        pauses.append((after.restart_at - NOW).total_seconds())
        crashes = after.crashes
    assert pauses == [1, 2, 4, 5]
    assert after_exit(restart, crashes, is_failure=True, now=NOW).signal is Signal.CRASH_LOOP
    later = after_exit(restart, crashes, is_failure=True, now=NOW + timedelta(seconds=101))
    assert (later.signal, len(later.crashes)) == (Signal.EXITED, 1)


def test_whatever_its_owner_asks_for_it_is_not_restarted_without_a_pause() -> None:
    restart = Restart(backoff_s=0, backoff_max_s=0, max_crashes=1000, window_s=1e-6)
    crashes: tuple[datetime, ...] = ()
    now, restarts = NOW, 0
    while now < NOW + timedelta(seconds=60):
        after = after_exit(restart, crashes, is_failure=True, now=now)
        assert after.restart_at is not None
        now, crashes, restarts = after.restart_at, after.crashes, restarts + 1
    assert restarts < 70


@pytest.mark.parametrize(
    ("policy", "is_failure", "signal"),
    [
        (Policy.ALWAYS, False, Signal.EXITED),
        (Policy.ON_FAILURE, True, Signal.EXITED),
        (Policy.ON_FAILURE, False, Signal.ENDED),
        (Policy.NEVER, True, Signal.BROKE),
        (Policy.NEVER, False, Signal.ENDED),
    ],
)
def test_the_policy_says_what_follows_an_end(policy: Policy, is_failure: bool, signal: Signal) -> None:
    assert after_exit(Restart(policy=policy), (), is_failure=is_failure, now=NOW).signal is signal


def test_every_state_of_a_sandbox_is_a_ground() -> None:
    statuses = {state: sandbox_status(state, "exited", is_frozen=False) for state in lifecycle.State}
    assert statuses[lifecycle.State.STOPPED] is SandboxStatus.HALTED
    assert statuses[lifecycle.State.GRACE] is SandboxStatus.UP
    assert statuses[lifecycle.State.DESTROYING] is SandboxStatus.GONE
    assert sandbox_status(lifecycle.State.STOPPED, "stop_by_caller", is_frozen=False) is SandboxStatus.STOPPED
    assert sandbox_status(lifecycle.State.GRACE, "dry_while_frozen", is_frozen=True) is SandboxStatus.FROZEN


def test_it_sleeps_after_the_last_request_or_the_start() -> None:
    assert sleeps_at(Spec(command="x"), since=NOW, last_request=None) is None
    idle = Spec(command="x", idle_s=60)
    assert sleeps_at(idle, since=NOW, last_request=None) == NOW + timedelta(seconds=60)
    asked = NOW + timedelta(seconds=30)
    assert sleeps_at(idle, since=NOW, last_request=asked) == NOW + timedelta(seconds=90)


def test_a_spec_is_kept_as_it_was_and_ports_alternate() -> None:
    spec = Spec(bootstrap="#!/bin/sh", env={"A": "b"}, restart=Restart(policy=Policy.NEVER), idle_s=3)
    assert spec_from_json(asdict(spec)) == spec
    assert (next_port(spec, None), next_port(spec, PORTS[0]), next_port(spec, PORTS[1])) == (8080, 8081, 8080)
    assert next_port(Spec(command="x", port=5000), 8080) == 5000


def test_output_is_cut_into_lines_and_gone_on_with_where_the_log_stands() -> None:
    text = b"one\ntwo \xff\nthr"
    cutter = LineCutter({Stream.STDOUT: 0, Stream.STDERR: 0})
    lines = [
        line for at in range(len(text)) for line in cutter.feed(Output(Stream.STDOUT, text[at : at + 1]))
    ]
    assert lines == [(Stream.STDOUT, "one", 4), (Stream.STDOUT, "two �", 10)]
    assert list(cutter.finish()) == [(Stream.STDOUT, "thr", 13)]
    again = LineCutter({Stream.STDOUT: 4, Stream.STDERR: 0})
    assert list(again.feed(Output(Stream.STDOUT, text))) == [(Stream.STDOUT, "two �", 10)]
    lost = LineCutter({Stream.STDOUT: 4, Stream.STDERR: 0})
    dropped = list(lost.feed(Output(Stream.STDOUT, b"end\n", dropped=100)))
    assert dropped == [(Stream.STDOUT, "… 100 bytes were dropped", 100), (Stream.STDOUT, "end", 104)]


def test_a_log_is_bounded_and_survives_being_cut_short(tmp_path: Path) -> None:
    log = ServiceLog(tmp_path / "svc")
    for number in range(4000):
        log.write_all(NOW, 1, "svp_a", [("stdout", "x" * 1000, 1001 * (number + 1))])
    kept = sum(file.stat().st_size for file in (tmp_path / "svc").iterdir())
    assert kept <= 2 * MAX_FILE_BYTES + 4096
    with (tmp_path / "svc" / "log").open("ab") as file:
        file.write(b'{"n": 4001, "t": "2026')
    again = ServiceLog(tmp_path / "svc")
    assert (again.last, again.offset("svp_a", "stdout"), again.last_run) == (4000, 1001 * 4000, 1)
    again.write(NOW, 1, "system", "on")
    assert [line.number for line in again.tail(2)][-1] == 4001


def test_a_piece_of_sixty_thousand_empty_lines_is_cut_without_moving_the_rest_each_time() -> None:
    cutter = LineCutter({Stream.STDOUT: 0, Stream.STDERR: 0})
    found = cutter.feed(Output(Stream.STDOUT, b"\n" * 60_000 + b"end"))
    assert next(found) == (Stream.STDOUT, "", 1)
    assert sum(1 for _ in found) == 59_999
    assert list(cutter.finish()) == [(Stream.STDOUT, "end", 60_003)]


class Noisy:
    """A guest with one process that prints nothing but empty lines, as fast as it is read."""

    def __init__(self, pieces: int) -> None:
        self._pieces = pieces

    async def attach(self, process_id: str) -> Noisy:
        return self

    async def __aenter__(self) -> Noisy:
        return self

    async def __aexit__(self, *error: object) -> None:
        return

    async def output(self) -> AsyncIterator[Output | Exit]:
        for _ in range(self._pieces):
            yield Output(Stream.STDOUT, b"\n" * 65536)
        yield Exit(code=0)


async def test_a_service_that_prints_without_end_does_not_keep_the_server_from_others(tmp_path: Path) -> None:
    kept = ServiceLog(tmp_path / "svc")
    dependencies = SimpleNamespace(log=lambda _: kept, clock=SystemClock())
    pump = Pump(process_id="svp_1", run=1, on_end=lambda: None)
    carrying = asyncio.ensure_future(
        pump.carry(cast(ServiceDependencies, dependencies), "svc", cast(Guest, Noisy(50)))
    )
    longest, until = 0.0, time.monotonic() + 1.0
    while time.monotonic() < until:
        before = time.thread_time()
        await asyncio.sleep(0)
        longest = max(longest, time.thread_time() - before)
    carrying.cancel()
    await asyncio.wait([carrying])
    assert 0 < kept.last < 2 * RATE / LINE_COSTS + AT_ONCE
    # One piece of output written in one go would hold the loop for most of a second of its own time.
    assert longest < 0.3


@given(st.lists(st.text(max_size=20), max_size=30))
def test_a_log_that_is_opened_again_knows_what_it_knew_whatever_was_printed(texts: list[str]) -> None:
    with TemporaryDirectory() as folder:
        log = ServiceLog(Path(folder) / "svc")
        for run, text in enumerate(texts, 1):
            for process, printed in (
                ("", text),
                (f"svp_{run}", text),
                (f"svp_{run}", '", "p": "x", "o": 9}'),
            ):
                log.write_all(NOW, run, process, [("stderr", printed, 7 * run)])
        again = ServiceLog(Path(folder) / "svc")
        assert (again.last, again.last_run) == (log.last, log.last_run)
        for run in range(max(1, len(texts) - 10), len(texts) + 1):
            assert again.offset(f"svp_{run}", "stderr") == log.offset(f"svp_{run}", "stderr") == 7 * run
        for count in (5, 1000):
            # From the files, and from memory.
            found, known = again.tail(count), log.tail(count)
            assert [(one.number, one.text) for one in found] == [(one.number, one.text) for one in known]


def test_a_full_log_is_read_a_little_at_a_time_and_from_anywhere(tmp_path: Path) -> None:
    log = ServiceLog(tmp_path / "svc")
    for _ in range(50):
        log.write_all(NOW, 1, "svp_1", [("stdout", "x", at) for at in range(500)])
    again = ServiceLog(tmp_path / "svc")
    first = again.batch(0)[0].number
    assert 1 < first < 12_500, "the oldest lines were dropped"
    after, seen = 0, []
    while batch := again.batch(after):
        # A batch is parsed while everybody waits; all of it would take a fifth of a second.
        assert len(batch) <= 100
        seen += [line.number for line in batch]
        after = batch[-1].number
    assert seen == list(range(first, 25_001))
    for after in (first, 17_000, 24_999, 25_000):
        assert [line.number for line in again.batch(after)[:1]] == [after + 1][: 25_000 - after]


def test_wide_lines_are_not_kept_for_followers_beyond_what_they_may_take(tmp_path: Path) -> None:
    log = ServiceLog(tmp_path / "svc")
    wide = "\N{GRINNING FACE}" + "x" * 8000
    for number in range(300):
        log.write_all(NOW, 1, "svp_1", [("stdout", wide, number)])
    assert sum(sys.getsizeof(line.text) for line in log._recent) <= 256 * 1024
    assert [line.number for line in log.tail(20)] == list(range(281, 301))
    with (tmp_path / "svc" / "log").open("ab") as file:
        file.write(b'{"n": 301, "t"')
    again = ServiceLog(tmp_path / "svc")
    again.write(NOW, 1, "system", "on")
    assert [line.number for line in again.tail(3)] == [299, 300, 301]


def test_opening_a_full_log_and_reading_its_end_is_quick(tmp_path: Path) -> None:
    log = ServiceLog(tmp_path / "svc")
    for _ in range(40):
        log.write_all(NOW, 1, "svp_1", [("stdout", "x" * 60, at) for at in range(500)])
    began = time.process_time()
    for _ in range(20):
        assert len(log.tail(100)) == 100
    # Reading all of it as JSON would take a tenth of a second each time, and everybody waits meanwhile.
    assert (time.process_time() - began) / 20 < 0.03
