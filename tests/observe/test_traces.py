"""Traces and logs as values: what a caller may say, what is made of it, how a line of the log looks."""

from __future__ import annotations

import json
import logging
import re

import pytest

from sandboxer.observe.traces import CURRENT, FACTS, JsonLines, RequestTrace, read

GIVEN = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
WHOLE = re.compile(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"00",
        GIVEN.upper(),
        GIVEN + b"-more",
        GIVEN[:-1],
        b"ff" + GIVEN[2:],
        b"cc" + GIVEN[2:] + b"more",
        GIVEN.replace(b"4bf92f3577b34da6a3ce929d0e0e4736", b"0" * 32),
        GIVEN.replace(b"00f067aa0ba902b7", b"0" * 16),
        GIVEN.replace(b"-", b" "),
        GIVEN + b"\n",
        b"cc" + GIVEN[2:] + b"-" + b"x" * 1000,
    ],
)
def test_a_trace_that_is_not_valid_is_none(header: bytes) -> None:
    assert read(header) is None
    assert not RequestTrace("req_1", header).is_propagated


@pytest.mark.parametrize("header", [GIVEN, b"cc" + GIVEN[2:], b"cc" + GIVEN[2:] + b"-what-comes-later"])
def test_a_request_is_a_span_of_the_trace_that_its_caller_named(header: bytes) -> None:
    own = RequestTrace("req_1", header).trace
    assert own.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
    assert own.parent_id == "00f067aa0ba902b7"
    assert own.span_id != own.parent_id
    assert WHOLE.fullmatch(own.traceparent)


def test_what_a_caller_does_not_want_sampled_is_not() -> None:
    own = RequestTrace("req_1", GIVEN[:-1] + b"0").trace
    assert own.traceparent.endswith("-00")
    assert not own.child().is_sampled


def test_a_request_without_a_trace_begins_one_and_keeps_it() -> None:
    request = RequestTrace("req_1")
    assert request.trace.parent_id is None
    assert request.trace is request.trace
    assert request.trace.trace_id != RequestTrace("req_1").trace.trace_id


def test_a_command_is_told_the_trace_only_if_its_caller_takes_part() -> None:
    assert RequestTrace("req_1").environment({"A": "b"}, is_asked=False) == {"A": "b"}
    for request, is_asked in ((RequestTrace("req_1", GIVEN), False), (RequestTrace("req_1"), True)):
        env = request.environment({"A": "b"}, is_asked=is_asked)
        assert env == {"A": "b", "TRACEPARENT": request.command().traceparent}
        assert request.command().parent_id == request.trace.span_id
        assert request.is_propagated


def test_a_command_keeps_the_trace_that_its_caller_gave_it_by_name() -> None:
    env = {"TRACEPARENT": "mine"}
    assert RequestTrace("req_1", GIVEN).environment(env, is_asked=True) == env


def line(record: logging.LogRecord) -> dict[str, object]:
    written = JsonLines().format(record)
    assert "\n" not in written
    found: dict[str, object] = json.loads(written)
    return found


def a_record(**more: object) -> logging.LogRecord:
    record = logging.LogRecord("a.b", logging.WARNING, "f.py", 1, "%s went\nwrong", ("it",), None)
    record.__dict__.update(more)
    return record


def test_a_line_names_the_request_that_is_being_served() -> None:
    request = RequestTrace("req_12345678", GIVEN)
    outer = CURRENT.set(request)
    try:
        found = line(a_record(**{FACTS: {"status": 200}}))
    finally:
        CURRENT.reset(outer)
    assert found["message"] == "it went\nwrong"
    assert (found["level"], found["logger"], found["status"]) == ("warning", "a.b", 200)
    assert found["request_id"] == "req_12345678"
    assert found["trace_id"] == request.trace.trace_id
    assert found["span_id"] == request.trace.span_id


def test_a_line_outside_of_requests_names_none_and_says_what_was_raised() -> None:
    try:
        raise ValueError("broken")
    except ValueError as error:
        record = a_record(exc_info=(type(error), error, error.__traceback__))
    found = line(record)
    assert "request_id" not in found
    assert "ValueError: broken" in str(found["error"])
