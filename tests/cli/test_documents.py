"""Every command that a document shows is one that the command line has, with options that it takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sandboxer.edges.cli.main import ALIASES, VERBS, load

ROOT = Path(__file__).parents[2]
BOX = re.compile(r"^```(?:sh|console)?\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`((?:sandboxer )?[a-z][a-z-]* [^`]+)`")
# What is typed, up to whatever ends a command.
TYPED = re.compile(r"(?:^|(?<!-aG)[\s(;&|])sandboxer ((?:--context \S+ )?[a-z].*?)(?= #|&&|[|;)]| >|$)")
loaded = cache(load)
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])


def commands(page: Path) -> Iterator[list[str]]:
    """The words of each command on a page: in boxes after `sandboxer`, in the text also without it."""
    text = page.read_text()
    for box in BOX.findall(text):
        lines = box.replace("\\\n", " ").splitlines()
        # Where a box shows what comes out, too, what is typed begins with a dollar.
        for line in [one for one in lines if one.startswith("$ ")] or lines:
            for words in TYPED.findall(line):
                yield split(words)
    for span in SPAN.findall(BOX.sub("", text)):
        words = split(span.removeprefix("sandboxer "))
        if span.startswith("sandboxer ") or (words[0] in VERBS and VERBS[words[0]].is_group):
            yield words


def split(words: str) -> list[str]:
    try:
        found = shlex.split(words)
    except ValueError:
        # It goes on in the next line.
        found = words.split()
    return found[2:] if found[0] == "--context" else found


def why_wrong(words: list[str]) -> str | None:
    """Why the command line would not understand this, or None."""
    name = ALIASES.get(words[0], words[0])
    if name not in VERBS:
        return f"there is no verb {name}"
    command: Any = loaded(name)
    rest = words[1:]
    while hasattr(command, "commands") and rest and rest[0][0].isalpha():
        # `freeze|thaw` is either of them.
        for verb in (verbs := rest.pop(0).split("|")):
            if verb not in command.commands:
                return f"{name} has no verb {verb}"
        command = command.commands[verbs[0]]
    if hasattr(command, "commands"):
        return None
    known = {option for given in command.params for option in (*given.opts, *given.secondary_opts)}
    ours = rest[: rest.index("--")] if "--" in rest else rest
    options = {word.partition("=")[0] for word in ours if re.match(r"--[a-z]", word)}
    unknown = options - known - {"--help"}
    return f"{name} has no option {', '.join(sorted(unknown))}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_command_line_knows_every_command_of_the_page(page: Path) -> None:
    wrong = [f"{' '.join(words)}: {why}" for words in commands(page) if (why := why_wrong(words))]
    assert not wrong
