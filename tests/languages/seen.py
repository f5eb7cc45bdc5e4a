"""What was seen of each language, kept in docs/reference/languages.json; the page beside it is made of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sandboxer.work.languages import PROGRAMS, Language, languages
from tests.languages.proving import Proved

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
SEEN = REFERENCE / "languages.json"
PAGE = REFERENCE / "languages.md"
HEAD = """<!-- Written by `make test-languages` from what it saw. Do not edit. -->

# Languages

`make test-languages` runs five programs of each in a real sandbox: one that says hello, one that reads a
line, one that ends with 3, one that is broken and must be refused, and one that never ends and must be cut
off. {good} languages and {shells} shells pass all five. How to use them: [the guide](../guides/languages.md).
They were seen in `base` and in the image `languages`; the column says which smaller image brings each.
"""
COLUMNS = ("name", "also called", "version seen", "image", *PROGRAMS)


def write_seen(proved: Sequence[Proved]) -> None:
    seen = {
        one.language.name: {
            "version": one.version,
            "hello_s": round(one.hello_s, 1),
            **{program: program not in one.wrong for program in PROGRAMS},
        }
        for one in proved
    }
    SEEN.write_text(json.dumps(seen, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(seen))


def read_seen() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(SEEN.read_text())
    return found


def page(seen: Mapping[str, Mapping[str, Any]]) -> str:
    tongues = [language for language in languages().values() if not language.is_shell]
    shells = [language for language in languages().values() if language.is_shell]
    text = HEAD.format(good=_good(tongues, seen), shells=_good(shells, seen))
    return text + "\n" + _rows(tongues, seen) + "\n## Shells\n\n" + _rows(shells, seen)


def passes(name: str, seen: Mapping[str, Mapping[str, Any]]) -> bool:
    return name in seen and all(seen[name][program] for program in PROGRAMS)


def _good(some: Sequence[Language], seen: Mapping[str, Mapping[str, Any]]) -> int:
    return sum(passes(language.name, seen) for language in some)


def _rows(some: Sequence[Language], seen: Mapping[str, Mapping[str, Any]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    for language in some:
        facts = seen.get(language.name, {})
        marks = ["✓" if facts.get(program) else "✗" for program in PROGRAMS]
        aliases = ", ".join(language.aliases)
        version = str(facts.get("version", "")).replace("|", "/")
        words = (f"`{language.name}`", aliases, version, language.image, *marks)
        lines.append(f"| {' | '.join(words)} |")
    return "\n".join(lines) + "\n"
