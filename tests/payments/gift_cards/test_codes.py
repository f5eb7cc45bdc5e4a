"""Four words: made, read, looked up and guarded. No database."""

from __future__ import annotations

import math

import pytest

from sandboxer.identity.seal import Seal
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest, TooManyRequests, WorkNeeded
from sandboxer.payments.gift_cards import codes as puzzles
from sandboxer.payments.gift_cards.codes import (
    WORDS,
    Attempts,
    Origin,
    Work,
    bits_asked,
    lookup_of,
    new_code,
    normalised,
    word_list,
)
from sandboxer.payments.gift_cards.records import (
    CARDS,
    REDEMPTIONS,
    CardSignal,
    CardState,
    GiftPolicy,
    RedemptionSignal,
    RedemptionState,
    next_card_state,
    next_redemption_state,
)
from sandboxer.sdk.confirmation import solve

PEPPER = b"p" * 32
SMALL = GiftPolicy(attempts_per_minute=10, work_bits=4, work_bits_most=8)


def test_the_list_has_7776_different_plain_words_and_the_sum_is_51_bits() -> None:
    words = word_list()
    assert len(words) == len(set(words)) == 7776
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words)
    assert 51.6 < math.log2(len(words) ** WORDS) < 51.8


def test_codes_use_the_whole_list_and_do_not_repeat() -> None:
    codes = [new_code() for _ in range(5000)]
    assert len(set(codes)) == len(codes)
    seen = {word for code in codes for word in code.split("-")}
    # Of 20,000 draws from 7,776 about 7.6 % are never drawn.
    assert len(seen) > 6900


@pytest.mark.parametrize(
    "written",
    [
        "ABACUS-ZOOM-ABACUS-ZOOM",
        "abacus zoom abacus zoom",
        "  Abacus\tzoom\n abacus   ZOOM ",
        "abacus--zoom_abacus, zoom.",
    ],
)
def test_case_spaces_and_hyphens_do_not_matter(written: str) -> None:
    assert normalised(written) == "abacus-zoom-abacus-zoom"
    assert lookup_of(written, PEPPER) == lookup_of("abacus-zoom-abacus-zoom", PEPPER)


@pytest.mark.parametrize(
    "written",
    [
        "",
        "abacus zoom abacus",
        "abacus zoom abacus zoom zoom",
        "abacuszoomabacuszoom",
        "abacus zoom abacus zооm",
        "abacus zoom abacus notaword",
        "a" * 100_000,
        "-".join(["zoom"] * 100),
        "\x00" * 10,
    ],
)
def test_anything_else_is_refused_before_it_is_looked_up(written: str) -> None:
    with pytest.raises(InvalidRequest):
        normalised(written)


def test_the_hash_needs_the_pepper_and_each_purpose_has_a_key_of_its_own() -> None:
    code = "abacus-zoom-abacus-zoom"
    assert lookup_of(code, PEPPER) != lookup_of(code, b"q" * 32)
    seal = Seal(bytes(32))
    assert len({seal.derive(info) for info in ("a", "b", "gift-card-lookup-v1")}) == 3
    assert seal.derive("a") == Seal(bytes(32)).derive("a")
    assert seal.derive("a") != Seal(b"\x01" * 32).derive("a")


def test_work_is_asked_from_half_the_budget_on_and_grows() -> None:
    asked = [bits_asked(used, SMALL) for used in range(10)]
    assert asked[:5] == [0] * 5
    assert asked[5:] == [4, 4, 5, 6, 7]


def test_a_budget_is_for_everybody_and_right_codes_cost_nothing() -> None:
    attempts = Attempts(b"k" * 32, SMALL)
    for _ in range(100):
        attempts.forgive(attempts.begin(None, now=0.0, wall=0))
    for _ in range(5):
        attempts.begin(None, now=0.0, wall=0)
    for _ in range(5):
        with pytest.raises(WorkNeeded) as asked:
            attempts.begin(None, now=1.0, wall=1)
        attempts.begin(_solved(asked.value), now=1.0, wall=1)
    with pytest.raises(TooManyRequests) as full:
        attempts.begin(None, now=1.0, wall=1)
    assert full.value.facts["retry_after_s"] == 59
    # A minute later the first five are forgotten.
    with pytest.raises(WorkNeeded):
        attempts.begin(None, now=60.5, wall=60)
    attempts.begin(None, now=61.1, wall=61)


def test_twelve_addresses_that_guess_use_up_their_own_share_and_lock_nobody_out() -> None:
    """Each may try ten times a minute; together they use up the budget of 120. Others go on, for work."""
    attempts = Attempts(b"k" * 32, GiftPolicy(work_bits=4, work_bits_most=8))
    guessers = [Origin(f"203.0.{n}.7", f"203.0.{n}.0/24") for n in range(12)]
    for guesser in guessers:
        for _ in range(10):
            _tries(attempts, guesser, now=1.0)
    for guesser in guessers:
        with pytest.raises(TooManyRequests):
            _tries(attempts, guesser, now=2.0)
    for n in range(200):
        honest = Origin(f"198.51.{n}.1", f"198.51.{n}.0/24", f"acc_{n}")
        with pytest.raises(WorkNeeded) as asked:
            attempts.begin(None, now=2.0, wall=2, origin=honest)
        attempts.forgive(attempts.begin(_solved(asked.value), now=2.0, wall=2, origin=honest))
    # A guesser that waits is served as before once the minute is over.
    attempts.begin(None, now=62.0, wall=62, origin=guessers[0])


def test_beyond_the_budget_a_network_has_three_wrong_codes_an_hour_and_an_account_one() -> None:
    attempts = Attempts(b"k" * 32, SMALL)
    _use_up(attempts, now=0.0)
    for n in range(3):
        _tries(attempts, Origin(f"2001:db8:0:{n}::/64", "2001:db8::/48"), now=1.0)
    _use_up(attempts, now=100.0)
    with pytest.raises(TooManyRequests):
        _tries(attempts, Origin("2001:db8:0:99::/64", "2001:db8::/48"), now=100.0)
    _tries(attempts, Origin("192.0.2.1", "192.0.2.0/24", "acc_one"), now=100.0)
    with pytest.raises(TooManyRequests):
        _tries(attempts, Origin("192.0.3.1", "192.0.3.0/24", "acc_one"), now=100.0)
    _use_up(attempts, now=3700.0)
    _tries(attempts, Origin("192.0.3.1", "192.0.3.0/24", "acc_one"), now=3701.0)


def test_no_network_uses_up_the_budget_alone() -> None:
    attempts = Attempts(b"k" * 32, GiftPolicy())
    for n in range(20):
        attempts.begin(None, now=0.0, wall=0, origin=Origin(f"2001:db8:0:{n}::/64", "2001:db8::/48"))
    with pytest.raises(TooManyRequests) as refused:
        attempts.begin(None, now=0.0, wall=0, origin=Origin("2001:db8:0:ff::/64", "2001:db8::/48"))
    assert refused.value.facts["per"] == "network"
    attempts.begin(None, now=0.0, wall=0, origin=Origin("192.0.2.1", "192.0.2.0/24"))


def test_work_beyond_the_budget_grows_with_every_doubling() -> None:
    assert [bits_asked(used, SMALL) for used in (10, 19, 20, 40, 80)] == [8, 8, 9, 10, 11]


def test_work_is_good_once_for_a_while_and_only_as_it_was_asked() -> None:
    attempts = Attempts(b"k" * 32, SMALL)
    for _ in range(5):
        attempts.begin(None, now=0.0, wall=0)

    def ask() -> WorkNeeded:
        with pytest.raises(WorkNeeded) as asked:
            attempts.begin(None, now=0.0, wall=0)
        return asked.value

    good = _solved(ask())
    begun = attempts.begin(good, now=0.0, wall=0)
    attempts.forgive(begun)
    for bad, wall in (
        (good, 0),
        (_solved(ask()), puzzles.LIVES_S),
        (Work(_solved(ask()).challenge, "nothing at all"), 0),
        (Work("w1.1.9999999999.abc.0123", "0"), 0),
        (Work("", ""), 0),
        (Work("w1.0.9999999999.x." + "0" * 32, "0"), 0),
        (_solved_elsewhere(), 0),
    ):
        if bad.solution == "nothing at all" and puzzles.is_solved(bad.challenge, bad.solution, 4):
            continue
        with pytest.raises(WorkNeeded):
            attempts.begin(bad, now=0.0, wall=wall)


def test_an_old_easy_challenge_does_not_pay_for_a_hard_one() -> None:
    attempts = Attempts(b"k" * 32, SMALL)
    for _ in range(5):
        attempts.begin(None, now=0.0, wall=0)
    saved = []
    for _ in range(6):
        with pytest.raises(WorkNeeded) as asked:
            attempts.begin(None, now=0.0, wall=0)
        saved.append(_solved(asked.value))
    for work in saved[:3]:
        attempts.begin(work, now=0.0, wall=0)
    # Now 6 bits are asked for, and 4 do not do.
    with pytest.raises(WorkNeeded):
        attempts.begin(saved[3], now=0.0, wall=0)


def test_every_cell_of_both_tables_is_a_move_or_a_refusal() -> None:
    for state in CardState:
        for signal in CardSignal:
            if (state, signal) in CARDS:
                assert next_card_state(state, signal) is CARDS[state, signal]
            else:
                with pytest.raises(IllegalTransition):
                    next_card_state(state, signal)
    for one in RedemptionState:
        for said in RedemptionSignal:
            if (one, said) in REDEMPTIONS:
                assert next_redemption_state(one, said) is REDEMPTIONS[one, said]
            else:
                with pytest.raises(IllegalTransition):
                    next_redemption_state(one, said)
    ended = {RedemptionState.GRANTED, RedemptionState.DENIED, RedemptionState.EXPIRED}
    assert not any(start in ended for start, _ in REDEMPTIONS)


def _tries(attempts: Attempts, origin: Origin | None, *, now: float) -> None:
    """Once, with whatever work it is asked for."""
    try:
        attempts.begin(None, now=now, wall=int(now), origin=origin)
    except WorkNeeded as asked:
        attempts.begin(_solved(asked), now=now, wall=int(now), origin=origin)


def _use_up(attempts: Attempts, *, now: float) -> None:
    """The budget of SMALL, by addresses all over the world."""
    for n in range(10):
        _tries(attempts, Origin(f"10.{n}.{int(now) % 250}.1", f"10.{n}.{int(now) % 250}.0/24"), now=now)


def _solved(asked: WorkNeeded) -> Work:
    challenge, bits = str(asked.facts["challenge"]), asked.facts["bits"]
    assert isinstance(bits, int)
    return Work(challenge, solve(challenge, bits))


def _solved_elsewhere() -> Work:
    made = puzzles.make_challenge(b"other" * 8, bits=4, nonce="n", now=0)
    return Work(made.text, solve(made.text, made.bits))
