"""From what somebody wants run to a plan: languages, names, patterns, and the life of a job."""

from __future__ import annotations

from typing import Any

import pytest

from sandboxer.backends.guest import EndReason, Output, Stream
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest
from sandboxer.sandboxes.requests import Origin
from sandboxer.work.execute import submission as submissions
from sandboxer.work.execute.artifacts import Artifact, Collected, LeftOut, matches
from sandboxer.work.execute.run import (
    Ended,
    Outcome,
    Stage,
    StageResult,
    Tape,
    outcome_from_json,
    outcome_to_json,
)
from sandboxer.work.execute.submission import InputFile, Submission, make_plan, shebang_language
from sandboxer.work.jobs.records import FINAL, LIFECYCLE, TRANSITIONS, Signal, State


@pytest.mark.parametrize(
    ("first_line", "language"),
    [
        ("#!/usr/bin/env python3", "python"),
        ("#!/usr/bin/python3.11 -u", "python"),
        ("#! /bin/bash -e", "bash"),
        ("#!/usr/bin/env -S LANG=C ruby --yjit", "ruby"),
        ("#!/usr/bin/env lua5.4", "lua"),
    ],
)
def test_a_first_line_names_the_language(first_line: str, language: str) -> None:
    assert make_plan(Submission(code=f"{first_line}\nwhatever")).language.name == language


def test_a_named_language_wins_over_the_first_line() -> None:
    assert make_plan(Submission(code="#!/bin/bash\n", language="py")).language.name == "python"


def test_neither_a_language_nor_a_first_line_is_refused_with_what_to_do() -> None:
    assert shebang_language("print(1)") is None
    with pytest.raises(InvalidRequest, match="name one"):
        make_plan(Submission(code="print(1)"))


def test_an_unknown_language_is_answered_with_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match="the nearest is python"):
        make_plan(Submission(code="", language="pyhton"))


def test_a_language_that_base_lacks_gets_the_image_that_has_it() -> None:
    assert make_plan(Submission(code="", language="fortran")).create.profile == "profile.languages"
    assert make_plan(Submission(code="", language="python")).create.profile is None


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/etc/passwd", "a//b", ".", "", "a/./b", "x\x00y"])
def test_names_stay_within_the_working_folder(name: str) -> None:
    with pytest.raises(InvalidRequest):
        make_plan(Submission(code="", language="python", files=(InputFile(name=name, data=b""),)))
    with pytest.raises(InvalidRequest):
        make_plan(Submission(code="", language="python", artifacts=(name,)))


def test_a_pattern_that_would_keep_the_server_busy_is_refused() -> None:
    for pattern in ("**/" * 300 + "x", "*a" * 17, "[" * 17):
        with pytest.raises(InvalidRequest) as refused:
            make_plan(Submission(code="", language="python", artifacts=("out.txt", pattern)))
        assert refused.value.facts["field"] == "artifacts.1"
    make_plan(Submission(code="", language="python", artifacts=("**/*.csv", "out/[a-z]*/**/*.png")))


def test_a_file_cannot_take_the_place_of_the_code() -> None:
    with pytest.raises(InvalidRequest, match="where the code itself goes"):
        make_plan(Submission(code="", language="python", files=(InputFile(name="main.py", data=b""),)))


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("*.png", "a.png", True),
        ("*.png", "plots/a.png", False),
        ("**/*.png", "a.png", True),
        ("**/*.png", "x/y/a.png", True),
        ("**", "x/y", True),
        ("out/**", "out/a/b", True),
        ("out/**", "other/a", False),
        ("data-?.csv", "data-1.csv", True),
        ("[ab].txt", "c.txt", False),
        ("*a" * 500, "a" * 900, True),
    ],
)
def test_patterns_match_folder_by_folder(pattern: str, name: str, is_match: bool) -> None:
    assert matches(pattern, name) is is_match


def test_what_a_job_was_given_survives_its_record() -> None:
    given = Submission(
        code="x",
        language="c",
        argv=("a",),
        stdin=b"\xff\x00",
        files=(InputFile(name="f", data=b"\x80"),),
        env={"A": "b"},
        artifacts=("*",),
        ttl_s=7,
        image="img_1",
        origin=Origin(disk_id="img_1", backend="ext.namespaces", image="img_1"),
    )
    assert submissions.from_json(submissions.to_json(given)) == given


def _ended(stage: Stage, code: int, **more: Any) -> StageResult:
    end = Ended(
        stage=stage, exit_code=code, **{"timed_out": False, "reason": None, "duration_ms": 1.5} | more
    )
    return StageResult(stdout=b"\xff", stderr=b"", stdout_dropped=3, stderr_dropped=0, end=end)


def test_what_a_job_left_survives_its_record() -> None:
    collected = Collected(
        artifacts=[Artifact(name="a", mode=0o644, data=b"\x00")],
        left_out=[LeftOut(name="b", why="too large", size=9)],
    )
    left = Outcome(
        compile=_ended(Stage.COMPILE, 0),
        run=_ended(Stage.RUN, 137, reason=EndReason.OOM_KILLED),
        collected=collected,
    )
    assert outcome_from_json(outcome_to_json(left)) == left
    assert (left.exit_code, left.reason, left.truncated) == (137, "oom_killed", True)


def test_a_failed_compile_decides_how_it_ended() -> None:
    failed = Outcome(compile=_ended(Stage.COMPILE, 2), run=None)
    assert (failed.exit_code, failed.reason) == (2, "compile_failed")


def test_output_beyond_the_limit_is_counted() -> None:
    tape = Tape(4)
    tape.take(Output(Stream.STDOUT, b"abc"))
    more = Output(Stream.STDOUT, b"defg", dropped=10)
    assert tape.room_for(more) == 1
    tape.take(more)
    assert (bytes(tape.data), tape.dropped) == (b"abcd", 13)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("signal", Signal)
def test_every_signal_moves_a_job_as_the_table_says_or_is_refused(state: State, signal: Signal) -> None:
    if (state, signal) in TRANSITIONS:
        assert LIFECYCLE.next_state(state, signal) is TRANSITIONS[state, signal]
    else:
        with pytest.raises(IllegalTransition):
            LIFECYCLE.next_state(state, signal)


def test_nothing_leaves_an_end_and_everything_else_reaches_one() -> None:
    assert not {state for state, _ in TRANSITIONS} & FINAL
    assert {state for state, _ in TRANSITIONS} | FINAL == set(State)
    for state in (State.QUEUED, State.RUNNING):
        assert LIFECYCLE.next_state(state, Signal.CANCEL) in FINAL
