"""Runbooks are typed in a hurry: every command in them has to exist, with the options it is given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxer.edges.cli.main import VERBS, load

FOLDER = Path(__file__).parents[2] / "docs" / "guides" / "runbooks"
PAGES = sorted(path.name for path in FOLDER.glob("*.md") if path.name != "README.md")
# Up to where the shell, a comment or the quoted word ends.
_COMMAND = re.compile(r"(?<![\w/.-])sandboxer ((?:[a-z][\w-]*)(?: [^\n`|;&#)>]*)?)")


def commands(text: str) -> Iterator[list[str]]:
    for found in _COMMAND.finditer(text.replace("\\\n", " ")):
        words = found[1].split(" -- ")[0].split()
        if words and words[0] in VERBS:
            yield words


@pytest.mark.parametrize("name", PAGES)
def test_every_command_of_a_runbook_exists(name: str) -> None:
    seen = 0
    for words in commands((FOLDER / name).read_text()):
        seen += 1
        command: Any = load(words[0])
        rest = words[1:]
        while hasattr(command, "commands") and rest:
            if rest[0].startswith("-"):
                break
            assert rest[0] in command.commands, " ".join(words)
            command, rest = command.commands[rest[0]], rest[1:]
        options = {option for param in command.params for option in param.opts} | {"--help"}
        given = {word.split("=")[0] for word in rest if word.startswith("--") and len(word) > 2}
        assert given <= options, " ".join(words)
    assert seen


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.md")))
def test_every_link_of_a_runbook_leads_somewhere(name: str) -> None:
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", (FOLDER / name).read_text()):
        assert (FOLDER / target).exists(), target
