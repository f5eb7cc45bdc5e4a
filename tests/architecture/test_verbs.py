"""The grammar of the command line: documents name verbs that exist, nouns have the same verbs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup

from sandboxer.edges.cli.main import ALIASES, VERBS, load

ROOT = Path(__file__).resolve().parents[2]
# `sandboxer` as a command, with what follows it on its line; not a path, a module, a user or a word of prose.
COMMAND = re.compile(r"(?<![\w./@-])sandboxer((?:[ \t]+[^\s`'\")]+)+)")
CODE = re.compile(r"^```[^\n]*\n(.*?)^```|^    (\S[^\n]*)$|`([^`]+)`", re.DOTALL | re.MULTILINE)
VERB = re.compile(r"[a-z][a-z-]*(\|[a-z][a-z-]*)*")
# What follows the product's name in sentences and imports.
PROSE = {"import", "serves", "looks", "server", "master", "releases"}
# Words of ours that no noun has any more: each has one name for one act.
OLD = {"get", "destroy", "remove", "set-ttl", "extend-ttl", "change", "add", "end", "start-session", "built"}
ACTS_OF_THEIR_OWN = {"credit add"}


@cache
def command(name: str) -> Any:
    return load(ALIASES.get(name, name))


def commands() -> Iterator[tuple[Path, str]]:
    """Every command line that a document shows, in blocks of code or between backticks, and code."""
    shown = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*")]
    hints = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "testchains").rglob("*.py"),
        *(ROOT / "scripts").glob("*"),
    ]
    for path in sorted(path for path in [*shown, *hints] if path.is_file()):
        text = path.read_text(errors="replace")
        parts = [text]
        if path.suffix == ".md":
            parts = [block or line or inline.replace("\n", " ") for block, line, inline in CODE.findall(text)]
        for part in parts:
            for line in part.splitlines():
                yield from ((path, found.strip()) for found in COMMAND.findall(line))


def why_not(words: list[str]) -> str | None:
    """Follows the words as far as they name verbs; says which of them does not exist."""
    if words[0] in PROSE or words[:2] == ["image", "manifest"]:
        return None
    # A verb of the client inside (guest/client), which is another program.
    if words[0] == "api":
        return None
    known: Any = None
    for number, word in enumerate(words):
        if number and not isinstance(known, TyperGroup):
            return None
        names = {*VERBS, *ALIASES} if number == 0 else set(known.commands)
        if not VERB.fullmatch(word):
            return None
        if strange := [one for one in word.split("|") if one not in names]:
            return f"there is no {' '.join(words[:number])} {strange[0]}"
        first = word.split("|")[0]
        known = command(first) if number == 0 else known.commands[first]
    return None


def test_every_command_that_a_document_or_a_hint_shows_exists() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}: sandboxer {text}: {why}"
        for path, text in commands()
        if (why := why_not(text.split()))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_way_documents_are_read_finds_what_is_wrong() -> None:
    assert why_not(["destroy", "sbx_1"])
    assert why_not(["key", "cut"])
    assert why_not(["service", "domain", "add"])
    assert why_not(["key", "delegate", "worker"]) is None
    assert len(list(commands())) > 500


def verbs_of(name: str, made: Any) -> Iterator[str]:
    if not isinstance(made, TyperGroup):
        yield name
        return
    for one, inner in made.commands.items():
        yield from verbs_of(f"{name} {one}", inner)


@pytest.mark.parametrize("name", VERBS)
def test_an_act_has_the_same_name_on_every_noun(name: str) -> None:
    verbs = set(verbs_of(name, command(name))) - ACTS_OF_THEIR_OWN
    assert not [verb for verb in verbs if verb.split()[-1] in OLD]
    assert not name.endswith("s") or name in {
        "events",
        "logs",
        "capabilities",
        "status",
        "egress",
        "process",
        # All of them together are the suite; none is made or listed by itself.
        "flows",
        "ls",
        "ps",
    }
