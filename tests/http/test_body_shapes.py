"""Large bodies: many tiny values are refused as they come, text is read beside the loop."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandboxer.identity.keys import OWNER_ACCOUNT
from sandboxer.kernel.budget import MAX_MARKS, Shape
from sandboxer.kernel.errors import TooLarge
from tests.support.http.served import Served

ROUTES = ("/v1/sandboxes", "/v1/execute", "/v1/services", "/v1/webhooks", "/v1/sandboxes/sbx_x/exec")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda one: st.lists(one) | st.dictionaries(st.text(), one),
)


def _values(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + _values(one) for one in value.values())
    if isinstance(value, list):
        return 1 + sum(_values(one) for one in value)
    return 1


def _counted(body: bytes, size: int) -> int:
    shape = Shape()
    for start in range(0, len(body), size):
        shape.feed(body[start : start + size])
    return shape.marks


@given(value=VALUES, size=st.integers(1, 40))
def test_no_value_is_missed_however_the_body_is_cut(value: object, size: int) -> None:
    for body in (
        json.dumps(value).encode(),
        json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"),
    ):
        assert _counted(body, size) == _counted(body, len(body) or 1)
        assert _values(value) <= 1 + _counted(body, size)


def test_what_is_in_a_string_is_no_value() -> None:
    text = json.dumps({"code": 'print("[1,2,3]", \\\\)' * 50_000}).encode()
    assert _counted(text, 65_536) < 10
    with pytest.raises(TooLarge):
        _counted(b"[" + b"0," * (MAX_MARKS + 1), 65_536)


async def test_bodies_of_many_tiny_values_are_refused_at_every_route(served: Served) -> None:
    named = b'{"env":{' + b'"a":"b",' * 100_000 + b'"a":"b"}}'
    for body in (b"[" + b"0," * 500_000 + b"0]", named, b"[" * 200_000):
        for path in ROUTES:
            answer = await served.client.send("POST", path, content=body)
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large"), (path, answer.text)


async def test_work_on_large_bodies_is_paid_for_in_seconds_of_the_account(served: Served) -> None:
    path = await served.sandbox()
    large = {"argv": ["cat"], "stdin": "a,b:{" * 200_000, "output_limit_bytes": 1 << 21}
    answer = await served.client.post(f"{path}/exec", large)
    assert answer.status_code == 200, answer.text
    seconds = served.platform.budget.queues.allowances
    assert seconds is not None, "nothing was done beside the loop"
    seconds.spend(OWNER_ACCOUNT, 1000.0, time.monotonic())
    refused = await served.client.post(f"{path}/exec", large)
    assert (refused.status_code, refused.json()["code"]) == (429, "over_budget"), refused.text
    small = await served.client.post(f"{path}/exec", {"argv": ["true"]})
    assert small.status_code == 200, "what is small is not counted"
