"""The list of an image's content is kept beside its record. It tells which path was altered, and not only
that one was. It can be trusted if its digest is the image's; a list that was altered too tells nothing.

Each line is the percent-encoded path and the line of the manifest, in the order in which a layer is walked,
so that two lists can be compared side by side without loading either.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import quote_from_bytes, unquote_to_bytes

from sandboxer.artifacts.images.published.scan import Capped

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_END = ".list.zst"
_HALF = ".half"
# How many altered paths are named: the first few are enough to start looking.
_SHOWN = 20


class How(StrEnum):
    CHANGED = "changed"
    ADDED = "added"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Altered:
    path: str
    how: How


@dataclass(frozen=True, slots=True)
class Line:
    # The path from the root of the layer; empty for the root itself.
    path: bytes
    text: str

    @property
    def place(self) -> tuple[bytes, ...]:
        """Returns a key that sorts paths in the order in which a layer is walked."""
        return tuple(self.path.split(b"/")) if self.path else ()


@dataclass(slots=True)
class Comparison:
    """Compares a kept list with the lines of what exists now, which are fed in order."""

    listed: Iterator[Line]
    altered: Capped[Altered] = field(default_factory=lambda: Capped(_SHOWN))
    _next: Line | None = None
    _is_begun: bool = False

    def put(self, path: bytes, text: str) -> None:
        line = Line(path, text)
        place = line.place
        while (known := self._peek()) is not None and known.place < place:
            self._tell(known, How.MISSING)
            self._advance()
        if known is None or known.place != place:
            self._tell(line, How.ADDED)
            return
        if known.text != text:
            self._tell(line, How.CHANGED)
        self._advance()

    def finish(self) -> Capped[Altered]:
        while (known := self._peek()) is not None:
            self._tell(known, How.MISSING)
            self._advance()
        return self.altered

    def _peek(self) -> Line | None:
        if not self._is_begun:
            self._advance()
        return self._next

    def _advance(self) -> None:
        self._is_begun = True
        self._next = next(self.listed, None)

    def _tell(self, line: Line, how: How) -> None:
        shown = "/" + os.fsdecode(line.path).encode("utf-8", "backslashreplace").decode()
        self.altered.add(Altered(shown, how))


class Lists:
    """All lists, by the ids of their images. Blocks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextlib.contextmanager
    def writing(self, image_id: str) -> Iterator[ListWriter]:
        """Writes a list, which appears when it is complete or not at all."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        half = self._folder / f"{image_id}{_HALF}"
        try:
            with zstd.open(half, "wb", level=3) as file:
                yield ListWriter(file)
            half.rename(self._place(image_id))
        finally:
            half.unlink(missing_ok=True)

    @contextlib.contextmanager
    def reading(self, image_id: str) -> Iterator[ListReader | None]:
        """Opens a list. Yields None if the image was published before lists existed, or somebody
        removed it.
        """
        try:
            file = zstd.open(self._place(image_id), "rb")
        except FileNotFoundError:
            yield None
            return
        with file:
            yield ListReader(file)

    def drop(self, image_id: str) -> None:
        self._place(image_id).unlink(missing_ok=True)

    def sweep(self, living: Collection[str]) -> None:
        """Removes lists of images that no longer exist, and half-written ones."""
        if not self._folder.exists():
            return
        for found in self._folder.iterdir():
            if found.name.endswith(_HALF) or found.name.removesuffix(_END) not in living:
                found.unlink(missing_ok=True)

    def _place(self, image_id: str) -> Path:
        return self._folder / f"{image_id}{_END}"


class ListWriter:
    def __init__(self, file: zstd.ZstdFile) -> None:
        self._file = file

    def put(self, path: bytes, text: str) -> None:
        self._file.write(quote_from_bytes(path).encode() + b" " + text.encode() + b"\n")


class ListReader:
    def __init__(self, file: zstd.ZstdFile) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Returns the digest of the manifest that the list holds, after everything was read."""
        return "sha256:" + self._digest.hexdigest()

    def lines(self) -> Iterator[Line]:
        """Yields the lines, and stops where the list is damaged; its digest then differs."""
        with contextlib.suppress(zstd.ZstdError, EOFError, UnicodeDecodeError):
            for raw in self._file:
                quoted, _, text = raw.removesuffix(b"\n").partition(b" ")
                self._digest.update(text + b"\n")
                yield Line(unquote_to_bytes(quoted), text.decode())
