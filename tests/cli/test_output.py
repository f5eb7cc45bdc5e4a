"""What others wrote is shown, never obeyed."""

from __future__ import annotations

import ast
import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

import sandboxer.edges.cli
from sandboxer.backends.contract import Lack
from sandboxer.edges.cli import flows as flows_cli
from sandboxer.edges.cli.flows import failure, unpassed
from sandboxer.edges.cli.output import columns, facts_table, lacks_list, print_error, until
from sandboxer.kernel.values import counted
from sandboxer.sdk.errors import ApiError
from sandboxer.sdk.flows import FLOWS, CheckResult, Verdict

HOSTILE = "[/] [red]x\x1b]0;owned\x07\x1b[2J"


def test_a_tenants_words_are_neither_markup_nor_orders_to_the_terminal() -> None:
    shown = io.StringIO()
    console = Console(file=shown, width=200, color_system=None)
    console.print(columns([(HOSTILE, "fine")], "LABEL", "STATE"))
    console.print(facts_table([(HOSTILE, HOSTILE)]))
    text = shown.getvalue()
    assert text.count("[/] [red]x") == 3
    assert "\x1b" not in text
    assert "\x07" not in text


def test_neither_are_those_of_a_platform_that_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    problem = dict.fromkeys(("code", "detail", "next_step"), HOSTILE)
    print_error(ApiError(503, problem, request_id=HOSTILE), is_json=False)
    said = capsys.readouterr().err
    # The code is for machines, and not among what a person reads.
    assert said.count("owned") == 3
    assert "\x1b" not in said
    assert "\x07" not in said


def test_nor_those_of_a_platform_that_fails_a_check() -> None:
    shown = io.StringIO()
    found = CheckResult(flow=3, check="it pays", why="", verdict=Verdict.FAILED, detail=HOSTILE)
    Console(file=shown, width=200, color_system=None).print(failure(found))
    assert shown.getvalue().startswith("flow 3: it pays: [/] [red]x")
    assert "\x1b" not in shown.getvalue()
    assert "\x07" not in shown.getvalue()


ID = "snp_0123456789abcdefghjkmnpqrs"
# What stands in a column, at its longest.
LONGEST = {
    **dict.fromkeys(("ID", "SANDBOX", "OF", "IMAGE"), ID),
    "KEY": "sbx-pk-0123456789abcdefghjkmnpqrs",
    "ADDRESS": "http://the-name-of-it.alice.localhost:8080",
    "STATE": "crash_looping",
}
FOLDER = Path(sandboxer.edges.cli.__file__).parent
TABLES = {
    (path.stem, call.lineno): [word.value for word in call.args[1:] if isinstance(word, ast.Constant)]
    for path in sorted(FOLDER.rglob("*.py"))
    for call in ast.walk(ast.parse(path.read_text()))
    if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "columns"
}


@pytest.mark.parametrize("width", [60, 80])
@pytest.mark.parametrize("headings", [names for names in TABLES.values() if names])
def test_every_table_fits_and_keeps_what_names_the_thing(headings: list[str], width: int) -> None:
    row = [LONGEST.get(name.strip(), f"{name} {'long ' * 12}") for name in headings]
    lines = _lines(columns([row, row], *headings, width=width), width)
    assert max(map(len, lines)) <= width
    if "ID" in headings:
        assert sum(ID in line for line in lines) == (2 if headings.count("ID") else 0)
        assert "STATE" not in headings or "crash_looping" in lines[1]
    # No id is there in part.
    assert all(
        word in LONGEST.values() or not word.startswith(("snp_", "sbx-", "http:"))
        for line in lines
        for word in line.split()
    )


def test_what_matters_less_goes_first_and_comes_back_with_room() -> None:
    row = (ID, "a very long name of something that somebody keeps", "kept", "3m 20s ago")
    head = ("ID", "NAME", "STATE", "CREATED")
    narrow, wide = (_lines(columns([row], *head, width=width), width) for width in (56, 200))
    assert "CREATED" not in narrow[0]
    assert [len(narrow), len(wide)] == [2, 2]
    assert all(cell in wide[1] for cell in row)
    assert "a very" in narrow[1]


def _lines(table: Table, width: int) -> list[str]:
    shown = io.StringIO()
    Console(file=shown, width=width, color_system=None).print(table)
    return shown.getvalue().splitlines()


def test_a_remedy_is_never_broken_in_the_middle_of_a_command() -> None:
    shown = io.StringIO()
    why = "kernel.pid_max is 32768, shared by all sandboxes, however many there are of them"
    lack = Lack(what="many processes", why=why, remedy="sysctl kernel.pid_max=4194304")
    Console(file=shown, width=60, color_system=None).print(lacks_list([lack]))
    assert "    sysctl kernel.pid_max=4194304" in [line.rstrip() for line in shown.getvalue().splitlines()]


def test_what_was_meant_to_go_on_never_expires() -> None:
    now = datetime.now(UTC)
    assert until(now + timedelta(days=3650)) == "never"
    assert until(now + timedelta(days=2, hours=12, minutes=1)) == "in 2d 12h"


def test_why_a_check_of_a_flow_did_not_pass_is_said_once_a_reason() -> None:
    one = CheckResult(
        flow=3,
        check="a wallet pays",
        why="money",
        verdict=Verdict.NOT_OFFERED,
        detail="nothing is charged here",
    )
    other = replace(one, flow=13, check="a budget returns")
    fine = CheckResult(flow=6, check="code runs", why="work", verdict=Verdict.PASSED)
    said = [line.plain for line in unpassed([one, fine, other])]
    assert said == ["not offered in flow 3, 13: nothing is charged here"]


def test_every_verdict_and_every_reason_is_whole_on_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    why = "a reason that is longer than any column of a table which has to fit a terminal of eighty columns"
    results = [
        CheckResult(flow=14, check=check.says, why=check.why, verdict=verdict, detail=why)
        for verdict in Verdict
        for flow in FLOWS
        for check in flow.checks
    ]
    console = Console(file=io.StringIO(), width=80, color_system=None)
    monkeypatch.setattr(flows_cli, "out", console)
    monkeypatch.setattr("sandboxer.edges.cli.output.out", console)
    flows_cli._show("http://127.0.0.1:1", results)
    assert isinstance(console.file, io.StringIO)
    said = console.file.getvalue()
    assert "\u2026" not in said
    assert why in " ".join(said.split())
    assert max(map(len, said.splitlines())) <= 80


def test_one_of_something_is_not_told_as_many() -> None:
    assert [counted(number, "sandbox") for number in (0, 1, 2)] == ["0 sandboxes", "1 sandbox", "2 sandboxes"]
    assert counted(1, "sat") == "1 sat"
