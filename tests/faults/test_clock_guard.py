"""The server's own time: whatever is done to the wall clock, it never goes back and never leaps unseen."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.kernel.clock import ADOPT_AFTER, SILENT_FOR, TOLERANCE, Beat, Finding, GuardedClock
from sandboxer.money.heartbeat import gap_before, silence_before
from sandboxer.money.records import GapKind
from tests.faults.lying_host import START, LyingHost

HOUR, SECOND = timedelta(hours=1), timedelta(seconds=1)


def looked(clock: GuardedClock) -> Finding | None:
    seen = clock.look()
    clock.follow(seen)
    return seen.finding


@pytest.mark.parametrize("by", [HOUR, -HOUR, timedelta(days=3650), timedelta(days=-3650)])
def test_a_wall_clock_set_and_set_back_changes_nothing(by: timedelta) -> None:
    host = LyingHost()
    clock = GuardedClock(host)
    host.set_wall(by)
    assert clock.now() == START
    assert looked(clock) is Finding.JUMPED
    host.pass_time(5 * SECOND)
    assert (looked(clock), clock.now()) == (None, START + 5 * SECOND)
    assert clock.trouble == by
    host.set_wall(-by)
    assert (looked(clock), clock.now()) == (Finding.AGREES, START + 5 * SECOND)
    assert clock.trouble is None


def test_a_step_forward_that_stays_is_adopted_and_its_time_never_happened() -> None:
    host = LyingHost()
    clock = GuardedClock(host)
    host.set_wall(HOUR)
    assert looked(clock) is Finding.JUMPED
    host.pass_time(ADOPT_AFTER)
    seen = clock.look()
    assert seen.finding is Finding.ADOPTED
    assert seen.gap == (START + ADOPT_AFTER, START + ADOPT_AFTER + HOUR)
    clock.follow(seen)
    assert clock.now() == START + ADOPT_AFTER + HOUR
    assert looked(clock) is None


def test_a_step_back_that_stays_is_met_at_half_speed() -> None:
    host = LyingHost()
    clock = GuardedClock(host)
    host.set_wall(-HOUR)
    assert looked(clock) is Finding.JUMPED
    host.pass_time(ADOPT_AFTER)
    assert looked(clock) is Finding.SLOWED
    before = clock.now()
    host.pass_time(HOUR)
    assert clock.now() == before + HOUR / 2
    assert looked(clock) is None
    host.pass_time(HOUR)
    assert looked(clock) is Finding.AGREES


@pytest.mark.parametrize("down", [timedelta(0), 3 * SECOND, HOUR])
def test_what_a_killed_server_wrote_at_half_speed_is_no_older_for_the_next(down: timedelta) -> None:
    host = LyingHost()
    clock = GuardedClock(host)
    host.set_wall(-HOUR)
    assert looked(clock) is Finding.JUMPED
    host.pass_time(ADOPT_AFTER)
    assert looked(clock) is Finding.SLOWED
    beat = clock.beat()
    host.pass_time(4 * SECOND)
    written = clock.now()
    host.pass_time(down)
    aged = GuardedClock(host, beat).now() - written
    assert timedelta(0) <= aged <= down
    assert aged >= down - SILENT_FOR


def test_small_differences_are_followed_slowly() -> None:
    host = LyingHost()
    clock = GuardedClock(host)
    host.set_wall(SECOND)
    for _ in range(3000):
        host.pass_time(SECOND)
        before = clock.now()
        assert looked(clock) is None
        assert clock.now() == before
    assert abs(clock.look().ahead) < timedelta(milliseconds=20)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("pass"), st.integers(0, 3_600_000_000)),
            st.tuples(st.just("set"), st.integers(-(10**13), 10**13)),
            st.tuples(st.just("look"), st.just(0)),
            st.tuples(st.just("start"), st.just(0)),
            st.tuples(st.just("reboot"), st.integers(0, 10**10)),
        ),
        max_size=30,
    )
)
def test_time_never_goes_back_and_leaps_only_where_a_gap_says_so(steps: list[tuple[str, int]]) -> None:
    host = LyingHost()
    clock, beat = GuardedClock(host), None
    for what, us in steps:
        before, real = clock.now(), host.truth.now()
        gap = timedelta(0)
        if what == "pass":
            host.pass_time(timedelta(microseconds=us))
        elif what == "set":
            host.set_wall(timedelta(microseconds=us))
        elif what == "look":
            seen = clock.look()
            gap = timedelta(0) if seen.gap is None else seen.gap[1] - seen.gap[0]
            clock.follow(seen)
        else:
            beat = clock.beat()
            if what == "reboot":
                host.reboot(takes=timedelta(microseconds=us))
            clock = GuardedClock(host, beat)
            found = gap_before(beat, clock.beat())
            gap = timedelta(0) if found is None else found.ended_at - found.began_at
        passed = clock.now() - before
        assert passed >= timedelta(0)
        # Beyond what really passed, and the little by which it follows, only what a gap tells of.
        assert passed <= (host.truth.now() - real) * 1.0005 + gap + timedelta(microseconds=1)


def test_a_start_knows_how_long_nobody_was_there_and_whether_a_clock_proves_it() -> None:
    host = LyingHost()
    last = GuardedClock(host).beat()
    host.pass_time(HOUR)
    host.set_wall(timedelta(days=700))
    gap = gap_before(last, GuardedClock(host, last).beat())
    assert gap is not None
    assert (gap.kind, gap.began_at, gap.ended_at) == (GapKind.OUTAGE, START, START + HOUR)
    host.set_wall(timedelta(days=-700))
    host.reboot(takes=HOUR)
    gap = gap_before(last, GuardedClock(host, last).beat())
    assert gap is not None
    assert gap.kind is GapKind.UNWITNESSED


def test_a_long_silence_of_a_running_server_is_an_outage() -> None:
    last = Beat(moment=START, boot_us=0, boot_id="one")
    soon = Beat(moment=START + SILENT_FOR, boot_us=1, boot_id="one")
    late = Beat(moment=START + SILENT_FOR + SECOND, boot_us=2, boot_id="one")
    assert silence_before(last, soon) is None
    gap = silence_before(last, late)
    assert gap is not None
    assert (gap.kind, gap.ended_at - gap.began_at) == (GapKind.OUTAGE, SILENT_FOR + SECOND)


def test_the_tolerance_is_smaller_than_what_a_signature_may_be_late() -> None:
    assert timedelta(seconds=300) > TOLERANCE
