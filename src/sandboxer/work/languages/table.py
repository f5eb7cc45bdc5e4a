"""The languages that run here: one table, read from the YAML files beside this one.

Each entry says how a source file is named, compiled and run, which packages bring the tool, and holds five
programs that prove it works: `hello`, `stdin` (prints the line it read after "got: "), `exit` (ends with 3),
`error` (does not compile, or does not parse) and `loop` (never ends).
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.work.languages.tiers import ALL, BASE, tier_of

_FILES = ("scripting.yaml", "compiled.yaml", "functional.yaml", "shells.yaml")
PROGRAMS = ("hello", "stdin", "exit", "error", "loop")


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """How code of one language becomes a running process. Words in braces are filled in."""

    name: str
    title: str
    aliases: tuple[str, ...]
    extension: str
    packages: tuple[str, ...]
    pypi: tuple[str, ...]
    file: str  # what the source must be called: some compilers insist
    compile: tuple[str, ...] | None
    run: tuple[str, ...]
    version: tuple[str, ...]
    in_base: bool
    is_shell: bool
    programs: Mapping[str, str]

    @property
    def image(self) -> str:
        """The smallest image that has it."""
        return BASE if self.in_base else tier_of(self.name) or ALL


@dataclass(frozen=True, slots=True)
class Commands:
    """What to execute for one source file."""

    file: str
    compile: tuple[str, ...] | None
    run: tuple[str, ...]


def commands(language: Language, folder: str) -> Commands:
    """The command lines for a source kept in `folder`, which must be the program's alone."""
    path = f"{folder}/{language.file}"
    names = {
        "{file}": path,
        "{dir}": folder,
        "{stem}": language.file.rsplit(".", 1)[0],
        "{out}": f"{folder}/program",
    }
    return Commands(
        file=path,
        compile=None if language.compile is None else _fill(language.compile, names),
        run=_fill(language.run, names),
    )


@cache
def languages() -> Mapping[str, Language]:
    """Every language by its name, shells among them."""
    found: dict[str, Language] = {}
    for name in _FILES:
        text = files(__package__).joinpath(name).read_text(encoding="utf-8")
        for key, entry in yaml.safe_load(text).items():
            if key in found:
                raise ValueError(f"{name}: {key} is described twice")
            found[key] = _language(key, entry)
    return MappingProxyType(found)


def find_language(word: str) -> Language:
    """By name, alias or extension, in any case. Unknown: says which is nearest."""
    wanted = word.strip().lower()
    name = _by_word().get(wanted)
    if name is None:
        close = difflib.get_close_matches(wanted, _by_word(), n=1, cutoff=0.5)
        hint = f"the nearest is {_by_word()[close[0]]}" if close else "GET /v1/languages lists all"
        raise InvalidRequest(field="language", why=f"no language is called {word[:60]!r}; {hint}")
    return languages()[name]


@cache
def _by_word() -> Mapping[str, str]:
    words: dict[str, str] = {}
    for language in languages().values():
        for word in (language.name, *language.aliases):
            if words.setdefault(word, language.name) != language.name:
                raise ValueError(f"{word} names two languages: {words[word]} and {language.name}")
    for language in languages().values():  # an extension yields to every name
        words.setdefault(language.extension.lower(), language.name)
    return words


def _language(name: str, entry: Mapping[str, Any]) -> Language:
    return Language(
        name=name,
        title=entry["title"],
        aliases=tuple(entry.get("aliases", ())),
        extension=entry["extension"],
        packages=tuple(entry["packages"]),
        pypi=tuple(entry.get("pypi", ())),
        file=entry.get("file", f"main.{entry['extension']}"),
        compile=tuple(entry["compile"]) if "compile" in entry else None,
        run=tuple(entry["run"]),
        version=tuple(entry["version"]),
        in_base=entry.get("in_base", False),
        is_shell=entry.get("shell", False),
        programs=MappingProxyType({program: entry[program] for program in PROGRAMS}),
    )


def _fill(argv: tuple[str, ...], names: Mapping[str, str]) -> tuple[str, ...]:
    filled = []
    for part in argv:
        for mark, value in names.items():
            part = part.replace(mark, value)
        filled.append(part)
    return tuple(filled)
