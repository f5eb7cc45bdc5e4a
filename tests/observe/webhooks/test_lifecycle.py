"""The life of a delivery as a table, and when it is tried again."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.kernel.errors import Conflict, InvalidRequest
from sandboxer.observe.webhooks import carrier as signing
from sandboxer.observe.webhooks.endpoints import matches
from sandboxer.observe.webhooks.lifecycle import (
    DELAYS,
    LONGEST_REST,
    TRANSITIONS,
    DeliveryState,
    Signal,
    after_failure,
    next_state,
    rest_after,
)
from sandboxer.sdk.webhooks import WebhookRejected, verify

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.mark.parametrize(("state", "signal"), list(itertools.product(DeliveryState, Signal)))
def test_every_cell_is_a_move_or_a_refusal(state: DeliveryState, signal: Signal) -> None:
    if (state, signal) in TRANSITIONS:
        assert next_state(state, signal) is TRANSITIONS[state, signal]
    else:
        with pytest.raises(Conflict):
            next_state(state, signal)


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 30))
def test_a_failure_is_tried_again_within_bounds_and_given_up_after_about_a_day(
    chance: float, tries: int
) -> None:
    verdict = after_failure(DeliveryState.RETRYING, tries=tries, now=NOW, chance=chance)
    if tries > len(DELAYS):
        assert (verdict.state, verdict.due_at) == (DeliveryState.DEAD, None)
    else:
        assert verdict.due_at is not None
        assert DELAYS[tries - 1] * 0.79 <= verdict.due_at - NOW <= DELAYS[tries - 1] * 1.21


def test_all_tries_together_take_about_a_day() -> None:
    assert timedelta(hours=16) < sum(DELAYS, timedelta()) < timedelta(hours=30)
    assert rest_after(1, now=NOW) < rest_after(2, now=NOW) <= rest_after(99, now=NOW) == NOW + LONGEST_REST


def test_gone_is_final_at_once() -> None:
    assert after_failure(DeliveryState.PENDING, tries=1, now=NOW, chance=0, is_final=True).due_at is None


def test_the_signature_is_that_of_standard_webhooks() -> None:
    """The example of the specification's own libraries."""
    body = b'{"test": 2432232314}'
    found = signing.signature(SECRET, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert found == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_verify_takes_what_is_signed_and_refuses_everything_else() -> None:
    body = b'{"type":"x"}'
    now = 1_700_000_000
    headers = dict(signing.headers_of("m", now, body, [SECRET]))
    assert verify(SECRET, headers, body, now=now + 299) == {"type": "x"}
    assert verify([signing.new_secret(), SECRET], {k.upper(): v for k, v in headers.items()}, body, now=now)
    wrong = [
        (signing.new_secret(), headers, body, now),
        (SECRET, headers, body.replace(b"x", b"y"), now),
        (SECRET, headers, body, now + 301),
        (SECRET, headers, body, now - 301),
        (SECRET, {**headers, "webhook-id": "n"}, body, now),
        (SECRET, {**headers, "webhook-timestamp": str(now + 1)}, body, now),
        (SECRET, {**headers, "webhook-timestamp": "-1"}, body, now),
        (SECRET, {**headers, "webhook-timestamp": "1e9"}, body, now),
        (SECRET, {**headers, "webhook-signature": headers["webhook-signature"][3:]}, body, now),
        (SECRET, {**headers, "webhook-signature": "v2" + headers["webhook-signature"][2:]}, body, now),
        (SECRET, {**headers, "webhook-signature": "v1,"}, body, now),
        (SECRET, {**headers, "webhook-signature": "v1,é"}, body, now),
        (SECRET, {}, body, now),
    ]
    for secret, reported, given_body, moment in wrong:
        with pytest.raises(WebhookRejected):
            verify(secret, reported, given_body, now=moment)


def test_a_secret_has_enough_bytes_or_is_refused() -> None:
    for bad in ("", "whsec_", "whsec_short", "whsec_####", "whsec_" + "QUJD" * 40):
        with pytest.raises(InvalidRequest):
            signing.key_of(bad)


def test_kinds_match_wholly_by_beginning_or_always() -> None:
    assert matches(["sandbox.*"], "sandbox.ready")
    assert matches(["*"], "anything")
    assert matches(["usage.daily"], "usage.daily")
    assert not matches(["sandbox.*"], "sandboxes.x")
    assert not matches(["sandbox"], "sandbox.ready")
    assert not matches([], "x")
