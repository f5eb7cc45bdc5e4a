from __future__ import annotations

import tracemalloc
from bisect import bisect_right

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxer.accounts.limits import WINDOW_S, Limiter, Quota
from sandboxer.edges.http import problems
from sandboxer.kernel.errors import TooManyRequests

# Times on a grid of binary fractions: sums of them are exact.
gaps = st.integers(0, 120 * 64).map(lambda n: n / 64)


def admitted(limiter: Limiter, quotas: list[Quota], now: float) -> bool:
    try:
        limiter.admit(quotas, now=now)
    except TooManyRequests:
        return False
    return True


@given(st.integers(1, 12), st.lists(gaps, max_size=80))
def test_no_window_of_a_minute_ever_holds_more_than_the_limit(limit: int, pauses: list[float]) -> None:
    limiter, now, taken = Limiter(), 0.0, []
    for pause in pauses:
        now += pause
        expected = len(taken) - bisect_right(taken, now - WINDOW_S) < limit
        assert admitted(limiter, [Quota("key:a", limit)], now) is expected
        if expected:
            taken.append(now)


@given(st.integers(1, 12), st.lists(gaps, min_size=1, max_size=80))
def test_waiting_as_told_always_helps_and_a_moment_less_never_does(limit: int, pauses: list[float]) -> None:
    limiter, now, quota = Limiter(), 0.0, [Quota("key:a", limit)]
    for pause in pauses:
        now += pause
        if not admitted(limiter, quota, now):
            wait = limiter.wait_s(quota, now=now)
            assert 0 < wait <= WINDOW_S
            assert not admitted(limiter, quota, now + wait - 1 / 64)
            now += wait
            assert admitted(limiter, quota, now)


def test_the_refusal_says_limit_what_was_counted_and_whole_seconds_rounded_up() -> None:
    limiter = Limiter()
    for _ in range(7):
        limiter.admit([Quota("key:a", 7)], now=100.25)
    with pytest.raises(TooManyRequests) as caught:
        limiter.admit([Quota("key:a", 7)], now=101.0)
    assert caught.value.facts["retry_after_s"] == 60
    assert caught.value.facts["limit"] == 7
    assert caught.value.facts["per"] == "key"
    limiter.admit([Quota("key:a", 7)], now=101.0 + 60)


def test_over_http_it_is_429_with_the_same_seconds_in_the_header() -> None:
    answer = problems.response(TooManyRequests(limit=7, retry_after_s=42), "req_1")
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "42"
    assert b'"too_many_requests"' in answer.body


def test_a_refused_request_costs_none_of_its_quotas() -> None:
    limiter = Limiter()
    address, key = Quota("address:x", 1), Quota("key:a", 5)
    limiter.admit([address, key], now=0)
    for _ in range(10):
        assert not admitted(limiter, [address, key], 1)
    assert limiter.used("key:a", now=1) == 1
    assert limiter.used("address:x", now=1) == 1


def test_the_longest_wait_of_all_quotas_is_told() -> None:
    limiter = Limiter()
    limiter.admit([Quota("key:a", 1)], now=0)
    limiter.admit([Quota("address:x", 1)], now=30)
    assert limiter.wait_s([Quota("key:a", 1), Quota("address:x", 1)], now=40) == 50


@given(st.lists(st.tuples(gaps, st.integers(1, 10)), max_size=60))
def test_a_limit_that_changes_holds_for_the_past_as_far_as_it_is_remembered(
    steps: list[tuple[float, int]],
) -> None:
    limiter, now, taken = Limiter(), 0.0, []
    for pause, limit in steps:
        now += pause
        if admitted(limiter, [Quota("key:a", limit)], now):
            taken.append(now)
            assert len(taken) - bisect_right(taken, now - WINDOW_S) <= 10
        else:
            assert len(taken) - bisect_right(taken, now - WINDOW_S) >= limit


def test_names_are_forgotten_after_a_minute_of_silence() -> None:
    limiter = Limiter()
    for number in range(1000):
        limiter.admit([Quota(f"key:{number}", 7)], now=0)
    for number in range(200):
        limiter.admit([Quota("key:live", 1000)], now=61 + number / 10)
    assert len(limiter) == 1


@settings(max_examples=20)
@given(st.integers(1, 50), st.lists(st.integers(0, 500), max_size=300))
def test_never_more_names_than_allowed_are_kept(most: int, names: list[int]) -> None:
    limiter = Limiter(max_names=most)
    for name in names:
        admitted(limiter, [Quota(f"address:{name}", 3)], 1.0)
        assert len(limiter) <= most


def test_ten_thousand_accounts_at_the_highest_tier_cost_bounded_memory() -> None:
    tracemalloc.start()
    try:
        limiter = Limiter()
        for number in range(10_000):
            quota = [Quota(f"key:{number}", 224)]
            for moment in range(20):
                limiter.admit(quota, now=moment / 100)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size < 20 * 1024 * 1024
