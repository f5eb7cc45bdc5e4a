"""A recipe says what an image is made of, and is read from YAML. The mirrors are the package sources for
building it, and those that its own apt gets afterwards: the host's own (they are near, and known to work),
with credentials kept out of the image. Pure functions: text comes in, a value or an error with its line comes
out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NoReturn

import yaml

from sandboxer.kernel.errors import InvalidRequest, NotAvailable
from sandboxer.kernel.values import brief_value_class

_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
_PACKAGE = re.compile(r"[a-z0-9][a-z0-9+.-]+")
_SUITE = re.compile(r"[a-z][a-z0-9-]*")
_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
# A name and an exact version: a build must not depend on the day it runs on.
_PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[0-9][A-Za-z0-9.]*")
_REQUIRED = frozenset({"name", "packages"})
_OPTIONAL = frozenset(
    {"description", "extends", "distributions", "pypi", "exclude", "include", "overlay", "user"}
)


@brief_value_class
class Distribution:
    suite: str  # "host": the host's own suite
    components: tuple[str, ...]


@brief_value_class
class Recipe:
    name: str
    description: str
    distributions: Mapping[str, Distribution]
    packages: tuple[str, ...]
    pypi: tuple[str, ...]
    exclude: tuple[str, ...]
    include: tuple[str, ...]
    overlays: tuple[str, ...]
    user: tuple[str, int] | None
    extends: str | None = None


def extend(child: Recipe, parent: Recipe) -> Recipe:
    """Returns the child with everything its parent has. Its own distributions and user take precedence."""
    return replace(
        child,
        distributions=child.distributions or parent.distributions,
        packages=tuple(dict.fromkeys((*parent.packages, *child.packages))),
        pypi=tuple(dict.fromkeys((*parent.pypi, *child.pypi))),
        exclude=tuple(dict.fromkeys((*parent.exclude, *child.exclude))),
        include=tuple(dict.fromkeys((*parent.include, *child.include))),
        overlays=(*parent.overlays, *child.overlays),
        user=child.user or parent.user,
        extends=None,
    )


def parse_recipe(text: str, *, source: str) -> Recipe:
    """Reads a recipe. A mistake is reported with its file and line."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise InvalidRequest(field=f"{source}:{line}", why=error.problem or "not YAML") from None
    return _Reader(source).recipe(root)


@brief_value_class
class _Reader:
    """Walks YAML nodes, which know their lines (plain values do not)."""

    source: str

    def recipe(self, root: yaml.Node | None) -> Recipe:
        if root is None:
            raise InvalidRequest(field=f"{self.source}:1", why="the recipe is empty")
        fields = self.mapping(root, "a recipe")
        self.check_keys(root, fields, required=_REQUIRED, optional=_OPTIONAL)
        return Recipe(
            name=self.matching(fields["name"], _NAME, "an image name (lower-case letters, digits, -)"),
            description=self.text(fields["description"]) if "description" in fields else "",
            distributions=self.parentage(root, fields),
            packages=self.packages(fields["packages"]),
            pypi=self.pinned(fields.get("pypi")),
            exclude=self.paths(fields.get("exclude")),
            include=self.paths(fields.get("include")),
            overlays=self.overlays(fields.get("overlay")),
            user=self.user(fields.get("user")),
            extends=self.matching(fields["extends"], _NAME, "a recipe's name")
            if "extends" in fields
            else None,
        )

    def parent(self, node: yaml.Node | None) -> str | None:
        return None if node is None else self.matching(node, _NAME, "a recipe's name")

    def parentage(self, root: yaml.Node, fields: Mapping[str, yaml.Node]) -> Mapping[str, Distribution]:
        if "distributions" in fields:
            return self.distributions(fields["distributions"])
        if "extends" not in fields:
            self.refuse(root, "'distributions' is missing (or extend a recipe that has it)")
        return {}

    def pinned(self, node: yaml.Node | None) -> tuple[str, ...]:
        if node is None:
            return ()
        items = self.sequence(node, "a list of packages")
        return tuple(
            self.matching(item, _PINNED, "a package and its version, as name==1.2") for item in items
        )

    def distributions(self, node: yaml.Node) -> Mapping[str, Distribution]:
        found: dict[str, Distribution] = {}
        for name, value in self.mapping(node, "a mapping of distributions").items():
            if name not in ("debian", "ubuntu"):
                self.refuse(value, f"unknown distribution {name!r}; known: debian, ubuntu")
            fields = self.mapping(value, "{suite, components}")
            self.check_keys(value, fields, required=frozenset({"suite", "components"}))
            found[name] = Distribution(
                suite=self.matching(fields["suite"], _SUITE, "a suite name, or host"),
                components=tuple(
                    self.matching(item, _SUITE, "a component")
                    for item in self.sequence(fields["components"], "a list of components")
                ),
            )
        if not found:
            self.refuse(node, "at least one distribution is needed")
        return found

    def packages(self, node: yaml.Node) -> tuple[str, ...]:
        seen: dict[str, None] = {}
        for item in self.sequence(node, "a list of packages"):
            if (package := self.matching(item, _PACKAGE, "a package name")) in seen:
                self.refuse(item, f"package {package} is listed twice")
            seen[package] = None
        return tuple(seen)

    def paths(self, node: yaml.Node | None) -> tuple[str, ...]:
        if node is None:
            return ()
        patterns = []
        for item in self.sequence(node, "a list of paths"):
            pattern = self.text(item)
            if not pattern.startswith("/") or "\n" in pattern:
                self.refuse(item, f"expected an absolute path pattern, got {pattern!r}")
            patterns.append(pattern)
        return tuple(patterns)

    def overlays(self, node: yaml.Node | None) -> tuple[str, ...]:
        if node is None:
            return ()
        folder = self.text(node)
        if "/" in folder or folder in ("", ".", ".."):
            self.refuse(node, "overlay names a folder beside the recipe")
        return (folder,)

    def user(self, node: yaml.Node | None) -> tuple[str, int] | None:
        if node is None:
            return None
        fields = self.mapping(node, "{name, uid}")
        self.check_keys(node, fields, required=frozenset({"name", "uid"}))
        name = self.matching(fields["name"], _USER, "a user name")
        uid = self.text(fields["uid"])
        if not uid.isdecimal() or not 1000 <= int(uid) <= 59999:
            self.refuse(fields["uid"], f"a uid is a number from 1000 to 59999, got {uid!r}")
        return name, int(uid)

    # -- the shapes of YAML ------------------------------------------------------------------------------

    def mapping(self, node: yaml.Node, expected: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self.refuse(node, f"expected {expected}")
        fields: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if (name := self.text(key)) in fields:
                self.refuse(key, f"{name!r} is given twice")
            fields[name] = value
        return fields

    def sequence(self, node: yaml.Node, expected: str) -> list[yaml.Node]:
        if not isinstance(node, yaml.SequenceNode) or not node.value:
            self.refuse(node, f"expected {expected}")
        return list(node.value)

    def text(self, node: yaml.Node) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self.refuse(node, "expected a plain value")
        return str(node.value)

    def matching(self, node: yaml.Node, pattern: re.Pattern[str], expected: str) -> str:
        value = self.text(node)
        if not pattern.fullmatch(value):
            self.refuse(node, f"expected {expected}, got {value!r}")
        return value

    def check_keys(
        self,
        node: yaml.Node,
        fields: Mapping[str, yaml.Node],
        *,
        required: frozenset[str],
        optional: frozenset[str] = frozenset(),
    ) -> None:
        for name, value in fields.items():
            if name not in required | optional:
                self.refuse(value, f"unknown key {name!r}; known: {', '.join(sorted(required | optional))}")
        for name in sorted(required - fields.keys()):
            self.refuse(node, f"{name!r} is missing")

    def refuse(self, node: yaml.Node, why: str) -> NoReturn:
        raise InvalidRequest(field=f"{self.source}:{node.start_mark.line + 1}", why=why)


_USABLE = ("http://", "https://", "file:", "copy:")
_CREDENTIALS = re.compile(r"//[^/@]*@")


@brief_value_class
class Source:
    uri: str
    suite: str
    components: tuple[str, ...]

    def line(self) -> str:
        return f"deb {self.uri} {self.suite} {' '.join(self.components)}"


@brief_value_class
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
    if (archive := next((s.uri for s in usable if s.suite in plain), None)) is None:
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
