"""Which files of a folder an image is not built from, as `.dockerignore` says it and the builder reads it.

What is left out need not be sent. The builder reads the same file again: what stays here by mistake is
ignored there.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_NAMES = (".containerignore", ".dockerignore")
_WORDS = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


class Pattern(NamedTuple):
    matcher: re.Pattern[str]
    # `!pattern`: what it fits is sent after all.
    is_exception: bool


def sent(folder: Path, dockerfile: str) -> Iterator[str]:
    """Yields the paths in a folder that are sent, folders before what is in them. The Dockerfile and what
    says what to ignore are always among them.
    """
    dockerfile = os.path.normpath(dockerfile)
    source = next((name for name in _sources(dockerfile) if (folder / name).is_file()), None)
    patterns = [] if source is None else patterns_in((folder / source).read_text(errors="replace"))
    always = {dockerfile, source}
    has_exceptions = any(one.is_exception for one in patterns)
    for place, folders, files in os.walk(folder):
        inside = os.path.relpath(place, folder)
        paths = {name: os.path.normpath(os.path.join(inside, name)) for name in [*folders, *files]}
        kept = [name for name, path in paths.items() if path in always or not is_ignored(path, patterns)]
        yield from sorted(paths[name] for name in kept)
        # Below a folder that is ignored an exception, or the Dockerfile, may still be sent.
        if not has_exceptions and "/" not in dockerfile:
            folders[:] = [name for name in folders if name in kept]


def _sources(dockerfile: str) -> Iterator[str]:
    for name in reversed(_NAMES):
        yield dockerfile + name
    yield from _NAMES


def patterns_in(text: str) -> list[Pattern]:
    """Reads the lines of such a file. The last one that fits a path decides."""
    found = []
    for line in text.splitlines():
        word = line.strip()
        is_exception = word.startswith("!")
        word = os.path.normpath(word.removeprefix("!").strip() or "#").lstrip("/")
        if word.startswith("#") or word == ".":
            continue
        try:
            found.append(Pattern(re.compile(_expression(word)), is_exception))
        except re.error:
            # The builder will say so: nothing is left out for what is not understood.
            return []
    return found


def is_ignored(path: str, patterns: list[Pattern]) -> bool:
    """Says whether a path, or a folder that it is in, is left out."""
    parts = path.split("/")
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    decided = [one for one in patterns if any(one.matcher.fullmatch(place) for place in above)]
    return bool(decided) and not decided[-1].is_exception


def _expression(pattern: str) -> str:
    """Returns the pattern as a regular expression: `*` stays within a folder, `**` does not."""
    pieces = re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|\\.|.", pattern, re.DOTALL)
    return "".join(_WORDS.get(one) or _literal(one) for one in pieces)


def _literal(piece: str) -> str:
    is_set = piece.startswith("[") and len(piece) > 1
    return piece if is_set else re.escape(piece[-1])
