"""Which of the images on a host have a language, and which to take. The caller says what is in them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from sandboxer.work.languages.table import ALL, Language, commands, languages

# Where wheels and our own wrappers put their programs.
PROGRAMS_FOLDER = "usr/local/bin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageContent:
    """What an image holds, as far as languages care."""

    name: str
    # Debian's, by name, with their versions.
    packages: Mapping[str, str]
    has_file: Callable[[str], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    language: Language
    images: tuple[str, ...]
    # Of its first package, by image; none for what is not Debian's.
    versions: Mapping[str, str]

    @property
    def version(self) -> str | None:
        """In the first image."""
        return self.versions.get(self.images[0]) if self.images else None

    @property
    def is_available(self) -> bool:
        return bool(self.images)


ImageOf = Callable[[Language], str]
"""Which image to run a language in."""


def smallest_image(language: Language) -> str:
    """For who knows of no host: the one to build."""
    return language.image


class HostImages:
    """What runs on this host, looked at now and then: images change by hand only, and anyone may ask."""

    KEPT_S = 30.0

    def __init__(self, look: Callable[[], Iterable[ImageContent]]) -> None:
        """`look` blocks."""
        self._look = look
        self._offers: Sequence[Offered] = ()
        self._seen_at: float | None = None

    async def offers(self, kept_s: float = KEPT_S) -> Sequence[Offered]:
        """Of every language."""
        if self._seen_at is None or time.monotonic() - self._seen_at > kept_s:
            images = await asyncio.to_thread(lambda: list(self._look()))
            self._offers = [offered(language, images) for language in languages().values()]
            self._seen_at = time.monotonic()
        return self._offers

    async def image_of(self) -> ImageOf:
        """The first image that has a language; the one to build where none has it."""
        first = {one.language.name: one.images[0] for one in await self.offers() if one.images}
        return lambda language: first.get(language.name, language.image)


def offered(language: Language, images: Iterable[ImageContent]) -> Offered:
    """The image it is meant for comes first; what has everything comes last."""
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
    """All shells together count as one."""
    tongues = sum(not language.is_shell for language in some)
    return tongues + any(language.is_shell for language in some)


def shown_commands(language: Language) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """How it is compiled and run, as one would type it in the folder of its source."""
    how = commands(language, ".")
    return how.compile, how.run
