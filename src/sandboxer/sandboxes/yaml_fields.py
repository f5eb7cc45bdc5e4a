"""YAML is read field by field, by name and type; every error names file:line:column.

PyYAML's safe nodes are used, and not its objects, because only nodes know their place in the file.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import NoReturn, TypeVar

import yaml

from sandboxer.kernel.clock import parse_duration
from sandboxer.kernel.errors import InvalidRequest

T = TypeVar("T")
_NOTHING = "tag:yaml.org,2002:null"
# The C loader, where it is installed, is ten times as fast.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_INTEGER = re.compile(r"^[0-9]{1,12}$")
_NUMBER = re.compile(r"^[0-9]{1,9}(\.[0-9]{1,6})?$")


class Fields:
    """One mapping of the file. Ask for all fields you know, then `finish`."""

    def __init__(self, file: Path, node: yaml.Node, path: str = "") -> None:
        self._file = file
        self._path = path
        if not isinstance(node, yaml.MappingNode):
            self.complain(node, "must be a mapping of keys to values")
        self._node = node
        self._left: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                self.complain(key, "a key must be a word")
            if key.value in self._left:
                self.complain(key, f"{key.value!r} is given twice")
            self._left[key.value] = (key, value)
        self._known: list[str] = []

    def has(self, name: str) -> bool:
        return name in self._left

    def text(self, name: str, *, pattern: str = r".*", otherwise: str | None = None) -> str:
        if (node := self._take(name, required=otherwise is None)) is None:
            return otherwise or ""
        value = self._scalar(node, name)
        if re.fullmatch(pattern, value, re.DOTALL) is None:
            self.complain(node, f"{value!r} does not look like {pattern}", name)
        return value

    def choice(self, name: str, kind: Callable[[str], T], *, otherwise: T | None = None) -> T:
        """One of an enumeration's values."""
        if (node := self._take(name, required=otherwise is None)) is None:
            assert otherwise is not None
            return otherwise
        return self._one_of(node, name, kind)

    def choices(self, name: str, kind: Callable[[str], T]) -> tuple[T, ...]:
        return tuple(self._one_of(node, name, kind) for node in self._items(name))

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(self._scalar(node, name) for node in self._items(name))

    def duration(self, name: str, *, is_optional: bool = False) -> timedelta | None:
        if (node := self._take(name, required=not is_optional)) is None:
            return None
        try:
            return parse_duration(self._scalar(node, name), field=name)
        except InvalidRequest as error:
            self.complain(node, str(error.facts["why"]), name)

    def integer(self, name: str, *, otherwise: int | None = None) -> int:
        if otherwise is not None and not self._is_given(name):
            return otherwise
        return int(self._matching(name, _INTEGER, "a whole number"))

    def number(self, name: str, *, otherwise: float | None = None) -> float:
        if otherwise is not None and not self._is_given(name):
            return otherwise
        return float(self._matching(name, _NUMBER, "a number"))

    def section(self, name: str, *, is_optional: bool = False) -> Fields:
        """Return a mapping below this one; an optional one that is absent reads as empty."""
        if (node := self._take(name, required=not is_optional)) is None:
            node = yaml.MappingNode("tag:yaml.org,2002:map", [], self._node.start_mark, self._node.end_mark)
        return Fields(self._file, node, self._full(name))

    def words(self) -> dict[str, str]:
        """Return all remaining fields as text, for free-form sections."""
        taken = {name: self._scalar(value, name) for name, (_, value) in self._left.items()}
        self._left.clear()
        return taken

    def finish(self) -> None:
        for name, (key, _) in self._left.items():
            close = difflib.get_close_matches(name, self._known, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(self._known)}"
            self.complain(key, f"unknown key {name!r}; {hint}")

    def complain(self, node: yaml.Node, why: str, name: str = "") -> NoReturn:
        mark = node.start_mark
        place = f"{self._file}:{mark.line + 1}:{mark.column + 1}"
        subject = self._full(name)
        raise InvalidRequest(field=place, why=f"{subject}: {why}" if subject else why)

    def complain_of(self, name: str, why: str) -> NoReturn:
        """Raise an error about a field that was read already."""
        for key, value in self._node.value:
            if key.value == name:
                self.complain(value, why, name)
        self.complain(self._node, why, name)

    def _is_given(self, name: str) -> bool:
        """Whether it has a value; one that has none is taken."""
        if name in self._left and self._left[name][1].tag != _NOTHING:
            return True
        self._take(name, required=False)
        return False

    def _take(self, name: str, *, required: bool) -> yaml.Node | None:
        self._known.append(name)
        if (found := self._left.pop(name, None)) is None:
            if required:
                # Very much alike: `kind` is no `id`.
                for meant in difflib.get_close_matches(name, self._left, n=1, cutoff=0.8):
                    self.complain(self._left[meant][0], f"unknown key {meant!r}; did you mean {name!r}?")
                self.complain(self._node, f"the key {name!r} is missing")
            return None
        node = found[1]
        if node.tag == _NOTHING:
            if required:
                self.complain(node, "must not be empty", name)
            return None
        return node

    def _scalar(self, node: yaml.Node, name: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            self.complain(node, "must be a single value", name)
        value: str = node.value
        return value

    def _items(self, name: str) -> list[yaml.Node]:
        if (node := self._take(name, required=False)) is None:
            return []
        if not isinstance(node, yaml.SequenceNode):
            self.complain(node, "must be a list", name)
        items: list[yaml.Node] = node.value
        return items

    def _one_of(self, node: yaml.Node, name: str, kind: Callable[[str], T]) -> T:
        value = self._scalar(node, name)
        try:
            return kind(value)
        except ValueError:
            known = ", ".join(str(member) for member in kind)  # type: ignore[attr-defined]
            self.complain(node, f"{value!r} is none of {known}", name)

    def _matching(self, name: str, form: re.Pattern[str], what: str) -> str:
        node = self._take(name, required=True)
        assert node is not None
        value = self._scalar(node, name)
        if node.tag == "tag:yaml.org,2002:str" or form.match(value) is None:
            self.complain(node, f"{value!r} is not {what}", name)
        return value

    def _full(self, name: str) -> str:
        return ".".join(part for part in (self._path, name) if part)


def read_fields(file: Path) -> Fields:
    """Read the top mapping of a YAML file. Raises InvalidRequest naming the place where it is not YAML."""
    try:
        node = yaml.compose(file.read_text(encoding="utf-8"), Loader=LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file)
        raise InvalidRequest(field=place, why=error.problem or "not YAML") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidRequest(field=f"{file}:1:1", why=f"not YAML text: {error}") from None
    if node is None:
        raise InvalidRequest(field=f"{file}:1:1", why="the file is empty")
    return Fields(file, node)
