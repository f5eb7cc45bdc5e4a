"""Help that helps, a table of verbs that is true, and a start that is quick."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from typer.core import TyperCommand, TyperGroup

from sandboxer import __version__
from sandboxer.edges.cli.exits import Exit
from sandboxer.edges.cli.main import ALIASES, VERBS, load
from tests.support.cli import Cli

PLAIN = {"NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "120"}


def test_help_names_every_verb_and_the_exit_codes(cli: Cli) -> None:
    said = cli("--help", **PLAIN)
    assert said.code == Exit.OK
    assert all(f" {name} " in said.out for name in VERBS)
    assert "Exit codes" in said.out


def verbs_of(command: Any) -> Iterator[TyperCommand]:
    """The verb itself, or all verbs of a group, groups within it included."""
    if isinstance(command, TyperGroup):
        for one in command.commands.values():
            yield from verbs_of(one)
    else:
        yield command


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_shows_examples_and_its_line_in_the_table_is_its_own(name: str) -> None:
    command = load(name)
    assert [verb.name for verb in verbs_of(command) if "Examples:" not in (verb.help or "")] == []
    first_words = VERBS[name].summary.rstrip(".").split(";")[0].split(",")[0]
    assert (command.help or "").replace("\n", " ").startswith(first_words)


@pytest.mark.parametrize("name", VERBS)
def test_every_verb_speaks_json_where_it_answers(name: str) -> None:
    # What these say is a conversation.
    talks = {"up", "shell", "ssh", "attach", "completion", "mcp"}
    for verb in verbs_of(load(name)):
        options = {option for param in verb.params for option in param.opts}
        assert verb.name in talks or "--json" in options, verb.name


@pytest.mark.parametrize("name", VERBS)
def test_examples_fit_a_terminal_of_eighty_columns(name: str) -> None:
    lines = [line for verb in verbs_of(load(name)) for line in (verb.help or "").splitlines()]
    assert [line for line in lines if line.startswith("    ") and len(line) > 79] == []


def test_help_flows_at_any_width_and_says_what_a_value_is(cli: Cli) -> None:
    said = cli("run", "--help", **PLAIN | {"COLUMNS": "80"}).out
    lines = [line.strip() for line in said.splitlines()]
    assert "after --. Where no image has the language, the smallest that would is offered" in lines
    assert "<" not in cli("--help", **PLAIN).out + cli("service", "create", "-h", **PLAIN).out + said


def test_an_unknown_verb_is_a_usage_error(cli: Cli) -> None:
    assert cli("frobnicate").code == Exit.USAGE
    assert cli("list", "--no-such-option").code == Exit.USAGE


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("crate", "create"),
        ("snapshto", "snapshot"),
        ("exce", "exec"),
        ("destroy", "delete"),
        ("get", "show"),
        ("extend-ttl", "update"),
        ("kill", "delete"),
        ("keys", "key"),
        ("payments", "pay"),
        ("key revoke", "delete"),
        ("webhook add", "create"),
        ("volume resize", "update"),
        ("wallet revoke", "unlink"),
        ("session start", "create"),
    ],
)
def test_a_verb_that_was_mistyped_or_is_anothers_is_suggested(cli: Cli, typed: str, meant: str) -> None:
    said = cli(*typed.split(), **PLAIN)
    assert (said.code, f"Did you mean {meant}" in said.err) == (Exit.USAGE, True), said.err


@pytest.mark.parametrize(("alias", "verb"), ALIASES.items())
def test_an_alias_is_the_verb_itself(cli: Cli, alias: str, verb: str) -> None:
    assert cli(alias, "-h", **PLAIN).out == cli(verb, "--help", **PLAIN).out


def test_the_version_is_told(cli: Cli) -> None:
    said = cli("--version", **PLAIN)
    assert (said.code, said.out) == (Exit.OK, f"sandboxer {__version__}\n")


@pytest.mark.parametrize("module", ["exec", "sandboxes", "cp", "shell", "lifecycle"])
def test_client_verbs_do_not_load_the_server(module: str) -> None:
    heavy = ["sqlalchemy", "fastapi", "uvicorn", "alembic", "sandboxer.wiring"]
    program = f"import sys, sandboxer.edges.cli.{module}; print([m for m in {heavy!r} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
