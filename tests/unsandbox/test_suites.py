"""How the run of foreign checks judges what it sees, and what it says where there is nothing to run."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unsandbox import suites

REVIEWED = yaml.safe_load(suites.OUTSIDE.read_text())


def test_clients_that_cannot_be_fetched_are_left_out_for_a_reviewed_reason_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    why = suites._fetch(str(tmp_path / "nothing"), tmp_path / "clients")
    assert why
    assert suites._left_out(why, REVIEWED["fetch"]) == 1
    unreached = "fatal: unable to access 'https://github.com/': Could not resolve host: github.com"
    assert suites._left_out(unreached, REVIEWED["fetch"]) == 0
    assert "a network in which github.com has an address" in capsys.readouterr().out


def test_every_excuse_is_of_a_suite_and_names_a_thing() -> None:
    assert set(REVIEWED) - {"fetch"} <= {suite.name for suite in suites.SUITES}
    assert all(len(lacks) > 10 for excuses in REVIEWED.values() for lacks in excuses.values())


@pytest.mark.parametrize(
    ("said", "outcomes"),
    [
        ("  \x1b[32m✓\x1b[0m one\n  ✗ two\n", ["passed", "failed"]),
        ("PASS: one\nFAIL: two (expected 3)\nSKIP: three\n", ["passed", "failed", "skipped"]),
        ("  \x1b[32m[PASS]\x1b[0m one\nPassed: 1\n", ["passed"]),
    ],
)
def test_lines_of_checks_are_read_whatever_they_look_like(said: str, outcomes: list[str]) -> None:
    done = subprocess.CompletedProcess([], 0, said, "")
    assert [one.outcome for one in suites._of_lines(Path(), done)] == outcomes


def test_a_script_that_ends_badly_has_failed_though_no_line_says_so() -> None:
    done = subprocess.CompletedProcess([], 1, "PASS: one\n", "it broke")
    assert [one.outcome for one in suites._of_lines(Path(), done)] == ["passed", "failed"]


def test_a_package_that_go_cannot_build_has_failed() -> None:
    said = '{"Action":"output","Output":"no such package\\n"}\n{"Action":"fail"}\n'
    done = subprocess.CompletedProcess([], 1, said, "")
    assert [one.outcome for one in suites._of_go(Path(), done)] == ["failed"]
