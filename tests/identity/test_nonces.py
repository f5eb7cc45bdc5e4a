from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandboxer.identity.nonces import WINDOW_S, NonceRepository
from sandboxer.kernel.errors import Unauthenticated, Unavailable

START = datetime(2026, 11, 15, 12, 0, 0, 400_000, tzinfo=UTC)
START_S = int(START.timestamp())


def used(
    repository: NonceRepository, nonce: str, *, stamp: int = 0, at: float = 0.0, key: str = "alice"
) -> str:
    """`ok` or why not. `stamp` and `at` are seconds after START."""
    try:
        repository.use(key, nonce, START_S + stamp, START + timedelta(seconds=at))
    except Unauthenticated as refusal:
        return str(refusal.facts["reason"])
    except Unavailable:
        return "full"
    return "ok"


def test_a_nonce_works_once_per_key() -> None:
    repository = NonceRepository(START)
    assert used(repository, "n") == "ok"
    assert used(repository, "n") == "replayed"
    assert used(repository, "n", stamp=5) == "replayed"
    assert used(repository, "n", key="bob") == "ok"


def test_a_nonce_is_remembered_for_as_long_as_its_timestamp_is_accepted() -> None:
    repository = NonceRepository(START)
    assert used(repository, "n", stamp=300) == "ok"
    assert used(repository, "n", stamp=300, at=600) == "replayed"
    assert used(repository, "n", stamp=300, at=602) == "before_start"


def test_memory_is_given_back_a_bounded_piece_at_a_time() -> None:
    repository = NonceRepository(START)
    for number in range(1000):
        assert used(repository, f"n{number}") == "ok"
    assert used(repository, "later", stamp=400, at=400) == "ok"
    assert 700 < len(repository) < 1000
    for number in range(20):
        assert used(repository, f"later{number}", stamp=400, at=400) == "ok"
    assert len(repository) == 21


def test_a_full_book_refuses_rather_than_forgets_and_recovers_with_time() -> None:
    repository = NonceRepository(START, capacity=10, capacity_per_key=10)
    for number in range(10):
        assert used(repository, f"n{number}") == "ok"
    assert used(repository, "one more") == "full"
    assert used(repository, "one more", key="bob") == "full"
    assert used(repository, "n0") == "replayed"
    assert used(repository, "one more", stamp=400, at=400) == "ok"


def test_one_key_cannot_use_up_the_book_for_all() -> None:
    repository = NonceRepository(START, capacity=10)
    for number in range(5):
        assert used(repository, f"n{number}") == "ok"
    assert used(repository, "one more") == "full"
    assert used(repository, "one more", key="bob") == "ok"


def test_a_clock_set_back_does_not_bring_old_requests_to_life() -> None:
    repository = NonceRepository(START)
    assert used(repository, "n", stamp=10, at=10) == "ok"
    assert used(repository, "other", stamp=500, at=500) == "ok"
    assert used(repository, "n", stamp=10, at=20) == "before_start"


def test_what_was_signed_before_the_start_is_refused_and_the_second_of_the_start_works() -> None:
    repository = NonceRepository(START)
    assert used(repository, "n", stamp=-1) == "before_start"
    assert used(repository, "n", stamp=0) == "ok"


def test_a_restart_within_the_same_second_replays_nothing_and_serves_the_honest(tmp_path: Path) -> None:
    first = NonceRepository(START, journal_dir=tmp_path)
    assert used(first, "n", stamp=0, at=0.1) == "ok"
    # No close: the process was killed.
    second = NonceRepository(START + timedelta(seconds=0.2), journal_dir=tmp_path)
    assert used(second, "n", stamp=0, at=0.3) == "replayed"
    assert used(second, "fresh", stamp=0, at=0.3) == "ok"


def test_a_client_whose_clock_is_ahead_is_not_replayable_after_any_number_of_restarts(tmp_path: Path) -> None:
    first = NonceRepository(START, journal_dir=tmp_path)
    assert used(first, "ahead", stamp=250) == "ok"
    for restart in range(1, 6):
        repository = NonceRepository(START + timedelta(seconds=restart * 40), journal_dir=tmp_path)
        assert used(repository, "ahead", stamp=250, at=restart * 40 + 1) == "replayed"
        assert used(repository, f"own{restart}", stamp=restart * 40 + 1, at=restart * 40 + 1) == "ok"
    assert len(repository) == 2


def test_a_torn_record_does_not_hide_the_others(tmp_path: Path) -> None:
    first = NonceRepository(START, journal_dir=tmp_path)
    assert used(first, "n", stamp=5) == "ok"
    with (tmp_path / "nonces.0").open("ab") as file:
        file.write(b"torn")
    second = NonceRepository(START + timedelta(seconds=1), journal_dir=tmp_path)
    assert used(second, "n", stamp=5, at=2) == "replayed"


def test_a_crash_while_gathering_the_journal_does_no_harm(tmp_path: Path) -> None:
    first = NonceRepository(START, journal_dir=tmp_path)
    assert used(first, "n", stamp=5) == "ok"
    (tmp_path / "nonces.1").write_bytes((tmp_path / "nonces.0").read_bytes())
    second = NonceRepository(START + timedelta(seconds=1), journal_dir=tmp_path)
    assert used(second, "n", stamp=5, at=2) == "replayed"
    assert len(second) == 1


def test_the_journal_does_not_grow_without_end(tmp_path: Path) -> None:
    repository = NonceRepository(START, journal_dir=tmp_path)
    for second in range(0, 4000, 5):
        assert used(repository, f"n{second}", stamp=second, at=second) == "ok"
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 24 * (2 * 310 / 5 + 2)


def test_a_nonce_that_cannot_be_recorded_is_not_accepted(tmp_path: Path) -> None:
    repository = NonceRepository(START, journal_dir=tmp_path)
    repository.close()
    assert used(repository, "n", stamp=5) == "full"
    assert used(repository, "n", stamp=-0, at=2) == "ok"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["use", "use", "use", "restart"]),
            st.integers(0, 5),
            st.integers(-WINDOW_S, WINDOW_S),
            st.floats(0, 200),
        ),
        max_size=40,
    )
)
def test_no_request_is_ever_accepted_twice(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int, float]]
) -> None:
    """Whatever the order of requests, pauses and kills: one (nonce, timestamp) gets in at most once."""
    folder = tmp_path_factory.mktemp("journal")
    repository, at = NonceRepository(START, journal_dir=folder), 0.0
    accepted: set[tuple[int, int]] = set()
    for what, number, skew, pause in steps:
        at += pause
        if what == "restart":
            repository = NonceRepository(START + timedelta(seconds=at), journal_dir=folder)
            continue
        # Both a new request and, for each taken before, its replay.
        attempts = [(number, int(0.4 + at) + skew), *accepted]
        for nonce, stamp in attempts:
            if abs(stamp - int(0.4 + at)) > WINDOW_S:
                continue
            if used(repository, f"n{nonce}", stamp=stamp, at=at) == "ok":
                assert (nonce, stamp) not in accepted
                accepted.add((nonce, stamp))
