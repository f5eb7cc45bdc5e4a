"""The table of languages, what was seen of each, and the page in the docs say the same."""

from __future__ import annotations

import re

import pytest

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.work.languages import (
    PROGRAMS,
    count,
    find_language,
    languages,
)
from tests.languages.proving import EXIT_CODE, LINE, Ran, what_is_wrong
from tests.languages.seen import PAGE, page, passes, read_seen


def ran(exit_code: int = 0, stdout: str = "", *, timed_out: bool = False, refused: bool = False) -> Ran:
    return Ran(exit_code=exit_code, stdout=stdout, stderr="", timed_out=timed_out, refused=refused)


def test_the_page_names_exactly_the_languages_of_the_table() -> None:
    named = re.findall(r"^\| `([^`]+)` \|", PAGE.read_text(), flags=re.MULTILINE)
    assert named == [
        *(name for name, language in languages().items() if not language.is_shell),
        *(name for name, language in languages().items() if language.is_shell),
    ]


def test_the_page_is_what_was_seen() -> None:
    assert PAGE.read_text() == page(read_seen()), "run `make test-languages`"


def test_at_least_42_languages_were_seen_to_pass_all_five() -> None:
    seen = read_seen()
    assert count([language for name, language in languages().items() if passes(name, seen)]) >= 42


def test_an_unknown_language_is_refused_with_the_nearest() -> None:
    with pytest.raises(InvalidRequest, match="fortran"):
        find_language("fortarn")


@pytest.mark.parametrize(("word", "name"), [("F90", "fortran"), ("c++", "cpp"), ("sh", "sh"), ("rs", "rust")])
def test_names_aliases_and_extensions_are_understood_in_any_case(word: str, name: str) -> None:
    assert find_language(word).name == name


@pytest.mark.parametrize(
    ("program", "good", "bad"),
    [
        ("hello", ran(stdout="hello from c\n"), ran(stdout="hello from cpp\n")),
        ("stdin", ran(stdout=f"got: {LINE}\n"), ran(1, f"got: {LINE}\n")),
        ("exit", ran(EXIT_CODE), ran(EXIT_CODE, refused=True)),
        ("error", ran(1, "error: nothing", refused=True), ran(1, "error: at run time")),
        ("loop", ran(137, timed_out=True), ran(137, timed_out=True, refused=True)),
    ],
)
def test_a_program_is_judged_by_what_it_did(program: str, good: Ran, bad: Ran) -> None:
    c = languages()["c"]
    assert program in PROGRAMS
    assert what_is_wrong(c, program, good) is None
    assert what_is_wrong(c, program, bad)
