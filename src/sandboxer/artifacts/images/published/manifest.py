"""The manifest says what an image is: every path with its mode, owner, size and content, in one order, as one
digest. This module also prepares a layer before it is kept as an image, and verifies kept ones.

Times of files are not part of the manifest. The lower tree is named and not listed: it is the operator's and
never changes (`name@digest`).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from sandboxer.artifacts.images.published import tree
from sandboxer.artifacts.images.published.contents import Altered, Comparison, Lists
from sandboxer.artifacts.images.published.scan import Capped, Finding, Scan, strip, strip_secrets
from sandboxer.artifacts.images.published.tree import Bounds, Entry, Kind
from sandboxer.backends.contract import KeptLayers
from sandboxer.kernel.errors import Conflict

FORM = "sandboxer image manifest 1"
_IN_WORDS = 5
PutLine = Callable[[bytes, str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    with _opened(layers) as layer, lists.writing(image_id) as writer:
        return survey(layer, base=layers.base, bounds=bounds, line=writer.put)


def verify(image_id: str, layers: KeptLayers, bounds: Bounds, lists: Lists, *, digest: str) -> None:
    """Reads every file again. Blocks. Raises Conflict (altered) with what differs."""
    with _opened(layers) as layer, lists.reading(image_id) as listed:
        if listed is None:
            found = survey(layer, base=layers.base, bounds=bounds, scans=False)
            check(found, digest, id=image_id, altered=None)
            return
        comparison = Comparison(listed.lines())
        found = survey(layer, base=layers.base, bounds=bounds, scans=False, line=comparison.put)
        altered = comparison.finish()
        check(found, digest, id=image_id, altered=altered if listed.digest == digest else None)


@contextmanager
def _opened(layers: KeptLayers) -> Iterator[int]:
    fd = os.open(layers.layer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


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
        mine = self._of_one.get(account)
        if mine is None:
            mine = self._of_one[account] = asyncio.Semaphore(OF_ONE)
        async with mine, self._all:
            yield
