"""The manifest says what an image is: every path with its mode, owner, size and content, in one order, as one
digest. This module also prepares a layer before it is kept as an image, and verifies kept ones.

Times of files are not part of the manifest. The lower tree is named and not listed: it is the operator's and
never changes (`name@digest`).

The list of an image's content is kept beside its record. It tells which path was altered, and not only
that one was. It can be trusted if its digest is the image's; a list that was altered too tells nothing.

Each line is the percent-encoded path and the line of the manifest, in the order in which a layer is walked,
so that two lists can be compared side by side without loading either.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote_from_bytes, unquote_to_bytes
from weakref import WeakValueDictionary

from sandboxer.artifacts.images.published import tree
from sandboxer.artifacts.images.published.scan import Capped, Finding, Scan, strip, strip_secrets
from sandboxer.artifacts.images.published.tree import Bounds, Entry, Kind
from sandboxer.backends.contract import KeptLayers
from sandboxer.backends.shared import opened
from sandboxer.kernel.errors import Conflict
from sandboxer.kernel.program import ZSTD, late
from sandboxer.kernel.values import brief_value_class, value_class

if TYPE_CHECKING:
    from backports import zstd
else:
    zstd = late(ZSTD)

_END = ".list.zst"
_HALF = ".half"
# How many altered paths are named: the first few are enough to start looking.
_SHOWN = 20


class How(StrEnum):
    CHANGED = "changed"
    ADDED = "added"
    MISSING = "missing"


@brief_value_class
class Altered:
    path: str
    how: How


@brief_value_class
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


FORM = "sandboxer image manifest 1"
_IN_WORDS = 5
PutLine = Callable[[bytes, str], None]


@value_class
class Survey:
    """What one pass over every file of a layer found."""

    digest: str
    size_bytes: int
    files: int
    findings: Capped[Finding]


@dataclass(slots=True)
class _Count:
    size_bytes: int = 0
    files: int = 0
    # A file is counted once, however many names it has.
    seen: set[int] = field(default_factory=set)

    def add(self, entry: Entry) -> None:
        if entry.kind is Kind.FILE:
            self.files += 1
        if entry.info.st_ino not in self.seen:
            self.size_bytes += entry.info.st_blocks * 512
            if entry.info.st_nlink > 1 and entry.kind is Kind.FILE:
                self.seen.add(entry.info.st_ino)


def survey(
    layer: int, *, base: str, bounds: Bounds, scans: bool = True, line: PutLine | None = None
) -> Survey:
    """Reads every file. Blocks. `line` receives every line of the manifest with its path, in order."""
    digest, count, findings = hashlib.sha256(), _Count(), Capped[Finding]()

    def put(path: bytes, text: str) -> None:
        digest.update(text.encode() + b"\n")
        if line is not None:
            line(path, text)

    root = os.fstat(layer)
    put(b"", json.dumps([FORM, base, stat.S_IMODE(root.st_mode), root.st_uid, root.st_gid]))
    for entry in tree.walk(layer, bounds):
        scan = Scan(entry.path) if scans else None
        content = _content(entry, scan)
        count.add(entry)
        mode = stat.S_IMODE(entry.info.st_mode)
        facts = [_text(entry.path), entry.kind, mode, entry.info.st_uid, entry.info.st_gid, *content]
        put(entry.path, json.dumps(facts))
        for found in () if scan is None else scan.findings:
            findings.add(found)
    return Survey(
        digest="sha256:" + digest.hexdigest(),
        size_bytes=count.size_bytes,
        files=count.files,
        findings=findings,
    )


def check(found: Survey, digest: str, *, id: str, altered: Capped[Altered] | None) -> None:
    """Raises Conflict unless the image is what was published. `altered` says what differs, if
    that is known.
    """
    if found.digest == digest:
        return
    facts: dict[str, object] = {"digest": digest, "found": found.digest}
    why = f"{id} is not what was published: someone changed it on the host"
    if altered is not None and altered.count:
        shown = ", ".join(f"{one.path} ({one.how.value})" for one in altered.first[:_IN_WORDS])
        more = altered.count - min(len(altered.first), _IN_WORDS)
        why += f": {shown}" + (f" and {more} more" if more else "")
        facts["altered"] = [{"path": one.path, "how": one.how.value} for one in altered.first]
        facts["altered_count"] = altered.count
    raise Conflict(why=why, reason="altered", **facts, hint="Do not use it; tell the operator.")


def _content(entry: Entry, scan: Scan | None) -> list[object]:
    match entry.kind:
        case Kind.FILE:
            hashed = hashlib.sha256()
            for chunk in tree.read(entry):
                hashed.update(chunk)
                if scan is not None:
                    scan.feed(chunk)
            if scan is not None:
                scan.finish()
            return [entry.info.st_size, hashed.hexdigest()]
        case Kind.LINK:
            return [_text(entry.target)]
        case Kind.FOLDER:
            return [entry.is_opaque, _text(entry.redirect)]
        case Kind.HIDDEN | Kind.SPECIAL:
            return [entry.info.st_rdev]


def _text(path: bytes) -> str:
    return os.fsdecode(path).encode("utf-8", "backslashreplace").decode()


@value_class
class Made:
    base: str
    survey: Survey
    stripped: Capped[str]


@dataclass(slots=True)
class Shaping:
    """Prepares the copy: removes credentials, and with `clean` whatever else looks like a secret."""

    bounds: Bounds
    clean: bool = False
    stripped: Capped[str] = field(default_factory=Capped)

    def __call__(self, layer: int) -> None:
        strip(layer, self.bounds, self.stripped)
        if self.clean:
            strip_secrets(layer, self.bounds, self.stripped)


def survey_and_list(image_id: str, layers: KeptLayers, bounds: Bounds, lists: Lists) -> Survey:
    """Surveys a new image and writes its list. Blocks."""
    with opened(layers.layer) as layer, lists.writing(image_id) as writer:
        return survey(layer, base=layers.base, bounds=bounds, line=writer.put)


def verify(image_id: str, layers: KeptLayers, bounds: Bounds, lists: Lists, *, digest: str) -> None:
    """Reads every file again. Blocks. Raises Conflict (altered) with what differs."""
    with opened(layers.layer) as layer, lists.reading(image_id) as listed:
        if listed is None:
            found = survey(layer, base=layers.base, bounds=bounds, scans=False)
            check(found, digest, id=image_id, altered=None)
            return
        comparison = Comparison(listed.lines())
        found = survey(layer, base=layers.base, bounds=bounds, scans=False, line=comparison.put)
        altered = comparison.finish()
        check(found, digest, id=image_id, altered=altered if listed.digest == digest else None)


AT_ONCE = 3
OF_ONE = 2


class Walks:
    """Limits how many images are walked file by file at once, per account and in all.

    Each walk takes a thread for up to half an hour, and whoever made the files decides for how long. Threads
    are few and shared: sandboxes are made by them, and names looked up.
    """

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(AT_ONCE)
        self._of_one: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    @asynccontextmanager
    async def turn(self, account: str) -> AsyncIterator[None]:
        """Waits for a turn, first within the account's own queue, so that its queue takes nobody else's
        place.
        """
        if (mine := self._of_one.get(account)) is None:
            mine = self._of_one[account] = asyncio.Semaphore(OF_ONE)
        async with mine, self._all:
            yield
