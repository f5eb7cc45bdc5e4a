"""The package sources for building an image, and those that its own apt gets afterwards.

Both are the host's own mirrors (they are near, and known to work); credentials are kept out of the image. The
functions are pure: the files of /etc/apt come in as text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sandboxer.artifacts.images.recipe import Recipe
from sandboxer.kernel.errors import NotAvailable

_USABLE = ("http://", "https://", "file:", "copy:")
_CREDENTIALS = re.compile(r"//[^/@]*@")


@dataclass(frozen=True)
class Source:
    uri: str
    suite: str
    components: tuple[str, ...]

    def line(self) -> str:
        return f"deb {self.uri} {self.suite} {' '.join(self.components)}"


@dataclass(frozen=True)
class Mirrors:
    distribution: str
    suite: str
    building: tuple[Source, ...]
    # The same for the image's own apt, without credentials, since every tenant can read it.
    inside: tuple[Source, ...]


def parse_os_release(text: str) -> Mapping[str, str]:
    pairs = (line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, value in pairs}


def parse_list(text: str) -> list[Source]:
    """Parses the one-line style: `deb [options] uri suite component …`."""
    found = []
    for line in text.splitlines():
        words = re.sub(r"\[[^]]*\]", " ", line.split("#", 1)[0]).split()
        if len(words) >= 4 and words[0] == "deb":
            found.append(Source(words[1], words[2], tuple(words[3:])))
    return found


def parse_deb822(text: str) -> list[Source]:
    """Parses the newer style: paragraphs with Types, URIs, Suites, Components."""
    found = []
    clean = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for paragraph in re.split(r"\n\s*\n", clean):
        fields: dict[str, list[str]] = {}
        key = ""
        for line in paragraph.splitlines():
            if line[:1] not in (" ", "\t") and ":" in line:
                key, line = line.split(":", 1)
            fields.setdefault(key.strip().lower(), []).extend(line.split())
        if "deb" in fields.get("types", []) and fields.get("enabled", ["yes"]) != ["no"]:
            found += [
                Source(uri, suite, tuple(fields.get("components", ())))
                for uri in fields.get("uris", ())
                for suite in fields.get("suites", ())
            ]
    return found


def choose_mirrors(recipe: Recipe, os_release: Mapping[str, str], host: Iterable[Source]) -> Mirrors:
    """Returns the host's own mirrors with the suite that the recipe asks for."""
    distribution = _distribution(recipe, os_release)
    wanted = recipe.distributions[distribution]
    codename = os_release.get("VERSION_CODENAME", "")
    suite = codename if wanted.suite == "host" else wanted.suite
    if not suite:
        raise NotAvailable(what=f"image {recipe.name}", why="this host's /etc/os-release names no suite")
    usable = [s for s in host if s.uri.startswith(_USABLE) and "main" in s.components]
    plain = {codename, suite, "stable", "oldstable", "testing"}
    archive = next((s.uri for s in usable if s.suite in plain), None)
    if archive is None:
        raise NotAvailable(
            what=f"image {recipe.name}",
            why=f"/etc/apt names no usable {distribution} mirror (http, https, file or copy, with main)",
        )
    security = next((s.uri for s in usable if s.suite.endswith("-security")), None)
    building = _suites(archive, security, suite, wanted.components)
    inside = tuple(replace(source, uri=_CREDENTIALS.sub("//", source.uri)) for source in building)
    return Mirrors(distribution=distribution, suite=suite, building=building, inside=inside)


def _distribution(recipe: Recipe, os_release: Mapping[str, str]) -> str:
    likes = [os_release.get("ID", ""), *os_release.get("ID_LIKE", "").split()]
    for name in likes:
        if name in recipe.distributions:
            return name
    wanted = " or ".join(recipe.distributions)
    raise NotAvailable(
        what=f"image {recipe.name}",
        why=f"it is built from {wanted} packages and this host is {likes[0] or 'neither'}",
    )


def _suites(
    archive: str, security: str | None, suite: str, components: tuple[str, ...]
) -> tuple[Source, ...]:
    plain = (Source(archive, suite, components), Source(archive, f"{suite}-updates", components))
    if security is None:
        return plain
    return (*plain, Source(security, f"{suite}-security", components))
