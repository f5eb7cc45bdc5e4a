"""This module knows the languages that can be run: one table, read from the YAML files beside it.

Each entry says how a source file is named, compiled and run, which packages bring the tool, and holds five
programs that prove it works: `hello`, `stdin` (prints the line it read after "got: "), `exit` (ends with 3),
`error` (does not compile, or does not parse) and `loop` (never ends).

It also decides which image of a host a language runs in, from what the caller says the images contain.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import yaml

from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.values import brief_value_class, value_class
from sandboxer.sandboxes.yaml_fields import LOADER

BASE = "base"
# Which image contains a language. Each builds in a minute or two; `languages` contains them all. Every name
# has a recipe `images/NAME.yaml`, and a test compares the two.
ALL = "languages"
TIERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "shells": ("zsh", "ksh", "mksh", "yash", "ash", "fish", "tcsh", "csh", "elvish", "xonsh"),
        "scripting": (
            *("typescript", "deno", "coffeescript", "livescript", "ruby", "raku", "php", "lua", "luajit"),
            *("tcl", "awk", "pike", "rexx", "basic", "slang"),
        ),
        "science": ("r", "octave"),
        "systems": ("go", "rust", "zig"),
        "compiled": (
            *("objc", "d", "nim", "crystal", "fortran", "cobol", "pascal", "ada", "vala", "assembly"),
        ),
        "jvm": ("java", "kotlin", "scala", "clojure", "groovy"),
        "functional": ("haskell", "ocaml", "sml", "erlang", "elixir"),
        "lisps": ("scheme", "racket", "commonlisp", "clisp", "newlisp", "picolisp", "elisp"),
        "assorted": ("prolog", "forth", "csharp", "haxe", "icon", "algol68"),
    }
)
_TIER_OF = MappingProxyType({name: tier for tier, names in TIERS.items() for name in names})


def tier_of(language: str) -> str | None:
    """Returns the name of the image that contains the language, or None if every image does."""
    return _TIER_OF.get(language)


_FILES = ("scripting.yaml", "compiled.yaml", "functional.yaml", "shells.yaml")
PROGRAMS = ("hello", "stdin", "exit", "error", "loop")


@value_class
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


@brief_value_class
class Commands:
    """The command lines for one source file."""

    file: str
    compile: tuple[str, ...] | None
    run: tuple[str, ...]


def commands(language: Language, folder: str) -> Commands:
    """Returns the command lines for a source in `folder`, which must belong to this program alone."""
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
    """Returns every language by name, including shells."""
    found: dict[str, Language] = {}
    for name in _FILES:
        text = files(__package__).joinpath(name).read_text(encoding="utf-8")
        for key, entry in yaml.load(text, LOADER).items():
            if key in found:
                raise ValueError(f"{name}: {key} is described twice")
            found[key] = _language(key, entry)
    return MappingProxyType(found)


def find_language(word: str) -> Language:
    """Returns a language by name, alias or extension, in any case. Raises an error that names the nearest
    known one.
    """
    wanted = word.strip().lower()
    if (name := _by_word().get(wanted)) is None:
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


# Wheels and our own wrappers install their programs here.
PROGRAMS_FOLDER = "usr/local/bin"


@value_class
class ImageContent:
    """The content of an image, as far as languages are concerned."""

    name: str
    # Debian packages by name, with their versions.
    packages: Mapping[str, str]
    has_file: Callable[[str], bool]


@value_class
class Offered:
    language: Language
    images: tuple[str, ...]
    # The version of its first package, by image; empty for languages that do not come from Debian.
    versions: Mapping[str, str]

    @property
    def version(self) -> str | None:
        """Returns the version in the first image."""
        return self.versions.get(self.images[0]) if self.images else None

    @property
    def is_available(self) -> bool:
        return bool(self.images)


ImageOf = Callable[[Language], str]
"""Which image to run a language in."""


def smallest_image(language: Language) -> str:
    """Returns the image to build, for callers who know of no host."""
    return language.image


class HostImages:
    """Knows which languages the images on this host contain. It looks at most every half a minute, since
    images change only by hand and anyone may ask.
    """

    KEPT_S = 30.0

    def __init__(self, look: Callable[[], Iterable[ImageContent]]) -> None:
        """`look` may block; it is called in a thread."""
        self._look = look
        self._offers: Sequence[Offered] = ()
        self._seen_at: float | None = None

    async def offers(self, kept_s: float = KEPT_S) -> Sequence[Offered]:
        """Returns an entry for every language."""
        if self._seen_at is None or time.monotonic() - self._seen_at > kept_s:
            images = await asyncio.to_thread(lambda: list(self._look()))
            self._offers = [offered(language, images) for language in languages().values()]
            self._seen_at = time.monotonic()
        return self._offers

    async def image_of(self) -> ImageOf:
        """Returns a function that names the first image with a language, or the one to build if no image has
        it.
        """
        first = {one.language.name: one.images[0] for one in await self.offers() if one.images}
        return lambda language: first.get(language.name, language.image)


def offered(language: Language, images: Iterable[ImageContent]) -> Offered:
    """Returns the images that have the language: the one meant for it first, the one with all
    languages last.
    """
    having = sorted(
        (image for image in images if has_language(image, language)),
        key=lambda image: (image.name != language.image, image.name == ALL, image.name),
    )
    package = language.packages[0]
    versions = {} if language.pypi else {image.name: image.packages[package] for image in having}
    return Offered(language=language, images=tuple(image.name for image in having), versions=versions)


def has_language(image: ImageContent, language: Language) -> bool:
    if any(package not in image.packages for package in language.packages):
        return False
    return not language.pypi or image.has_file(f"{PROGRAMS_FOLDER}/{language.version[0]}")


def count(some: Sequence[Language]) -> int:
    """Counts languages; all shells together count as one."""
    tongues = sum(not language.is_shell for language in some)
    return tongues + any(language.is_shell for language in some)


def shown_commands(language: Language) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """Returns how the language is compiled and run, as one would type it in the folder of the source."""
    how = commands(language, ".")
    return how.compile, how.run
