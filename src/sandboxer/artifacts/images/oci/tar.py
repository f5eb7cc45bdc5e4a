"""Reads a tar from an untrusted writer, with every number bounded, only one header in memory, and no seeking.
Writes a tar as a stream of bytes that is the same every time, so that its digest is known before it is sent.

`tarfile` is not used for reading: it reads extended headers into memory, however large they claim to be, and
guesses its way past damage. Here, anything odd is refused.

Writes a layer of an overlay, or a plain tree, as the tar that OCI calls a layer.

Hidden names become `.wh.` files, a folder that hides everything below it gets `.wh..wh..opq`, and a renamed
folder of the lower tree is written completely under its new name. Devices, FIFOs, sockets and attributes are
left out.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, TypedDict

from sandboxer.artifacts.images.published import tree
from sandboxer.artifacts.images.published.tree import Bounds, Entry, Kind
from sandboxer.backends.shared import opened, opened_beneath
from sandboxer.kernel.errors import InvalidRequest, TooLarge
from sandboxer.kernel.program import late

if TYPE_CHECKING:
    import tarfile
else:
    tarfile = late("tarfile")

WHITEOUT = b".wh."
OPAQUE = b".wh..wh..opq"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def plain_layer(root: int, bounds: Bounds) -> Iterator[bytes]:
    """Yields the layer of a whole tree."""
    links: dict[int, bytes] = {}
    for entry in tree.walk(root, bounds):
        yield from _written(entry, links)
    yield END


def diff_layer(layer: int, base: int, bounds: Bounds) -> Iterator[bytes]:
    """Yields the layer of what lies over a tree."""
    moved = _Moved(base, bounds)
    links: dict[int, bytes] = {}
    for entry in tree.walk(layer, bounds):
        if entry.kind is Kind.HIDDEN:
            if not moved.holds(entry.path):
                folder, slash, name = entry.path.rpartition(b"/")
                yield _marker(folder + slash + WHITEOUT + name)
            continue
        if entry.name.startswith(WHITEOUT):
            # Other tools would take it for a whiteout.
            continue
        yield from _written(entry, links)
        if entry.kind is Kind.FOLDER:
            if entry.is_opaque or entry.redirect:
                yield _marker(entry.path + b"/" + OPAQUE)
            yield from moved.under(entry)
    yield END


@dataclass(slots=True)
class _Moved:
    """Renamed folders of the lower tree: whatever of them is not in the layer itself has to be
    written too.
    """

    base: int
    bounds: Bounds
    # By path in the layer: the path in the lower tree.
    places: dict[bytes, bytes] = field(default_factory=dict)

    def holds(self, path: bytes) -> bool:
        return path.rpartition(b"/")[0] in self.places

    def under(self, entry: Entry) -> Iterator[bytes]:
        if (place := self._place(entry)) is None:
            return
        self.places[entry.path] = place
        with opened_beneath(self.base, place) as below:
            if below is None:
                return
            own = {os.fsencode(name) for name in _listed(entry)}
            links: dict[int, bytes] = {}
            for lower in tree.walk(below, self.bounds):
                if lower.path.partition(b"/")[0] not in own:
                    there = replace(lower, path=entry.path + b"/" + lower.path)
                    yield from _written(there, links)

    def _place(self, entry: Entry) -> bytes | None:
        folder = entry.path.rpartition(b"/")[0]
        above = self.places.get(folder)
        if entry.redirect.startswith(b"/"):
            return entry.redirect.lstrip(b"/")
        if entry.redirect:
            parent = folder if above is None else above
            return parent + b"/" + entry.redirect if parent else entry.redirect
        if above is None or entry.is_opaque:
            return None
        return above + b"/" + entry.name


def _written(entry: Entry, links: dict[int, bytes]) -> Iterator[bytes]:
    info = entry.info
    facts = Facts(mode=info.st_mode, uid=info.st_uid, gid=info.st_gid, mtime=int(info.st_mtime))
    if entry.kind is Kind.FOLDER:
        yield header(entry.path + b"/", kind=tarfile.DIRTYPE, **facts)
    elif entry.kind is Kind.LINK:
        yield header(entry.path, kind=tarfile.SYMTYPE, target=entry.target, **facts)
    elif entry.kind is Kind.FILE:
        if info.st_nlink > 1 and (first := links.setdefault(info.st_ino, entry.path)) != entry.path:
            yield header(entry.path, kind=tarfile.LNKTYPE, target=first, **facts)
            return
        yield header(entry.path, kind=tarfile.REGTYPE, size=info.st_size, **facts)
        yield from tree.read(entry)
        yield padding(info.st_size)


def _marker(path: bytes) -> bytes:
    return header(path, kind=tarfile.REGTYPE, mode=0o600)


def _listed(entry: Entry) -> list[str]:
    with opened(entry.name, _FOLDER, dir_fd=entry.folder_fd) as fd:
        return os.listdir(fd)


_BLOCK = 512
_CHUNK = 1 << 20
# The size limit of one extended header (long names and the like).
_MOST_EXTENDED = 1 << 20
_MOST_NAME = 4096
FILE, HARD_LINK, LINK, FOLDER = "file", "hard_link", "link", "folder"
_KINDS = {
    b"0": FILE,
    b"\0": FILE,
    b"7": FILE,
    b"1": HARD_LINK,
    b"2": LINK,
    b"5": FOLDER,
}
# Character and block devices and FIFOs have no content and are never created.
_SPECIAL = b"346"


class Source(Protocol):
    def read(self, count: int, /) -> bytes: ...


def odd(why: str) -> InvalidRequest:
    return InvalidRequest(field="archive", why=why)


@dataclass(slots=True)
class Member:
    path: bytes
    # `special` for what is never created.
    kind: str
    size: int
    mode: int
    uid: int
    gid: int
    mtime: int
    target: bytes
    _source: Source
    _left: int = field(init=False)

    def __post_init__(self) -> None:
        self._left = self.size

    def chunks(self) -> Iterator[bytes]:
        while self._left:
            if not (chunk := self._source.read(min(_CHUNK, self._left))):
                raise odd("it ends in the middle of a file")
            self._left -= len(chunk)
            yield chunk

    def skip(self) -> None:
        for _ in self.chunks():
            pass
        if (pad := -self.size % _BLOCK) and len(_exactly(self._source, pad)) != pad:
            raise odd("it ends in the middle of a file")


def members(source: Source) -> Iterator[Member]:
    """Yields one entry after the other; content that is not read is skipped. Raises InvalidRequest for
    anything odd.
    """
    extended: dict[bytes, bytes] = {}
    everywhere: dict[bytes, bytes] = {}
    while True:
        if not (head := _exactly(source, _BLOCK)) or not head.strip(b"\0"):
            return
        if len(head) < _BLOCK:
            raise odd("it is cut short")
        if (kind := _checked(head)) in (b"x", b"g", b"L", b"K"):
            content = _extended(source, head)
            if kind == b"g":
                everywhere |= _records(content)
            elif kind == b"x":
                extended |= _records(content)
            else:
                extended[b"path" if kind == b"L" else b"linkpath"] = content.rstrip(b"\0")
            continue
        member = _member(source, head, kind, {**everywhere, **extended})
        extended = {}
        yield member
        member.skip()


def _member(source: Source, head: bytes, kind: bytes, extended: dict[bytes, bytes]) -> Member:
    if any(key.startswith(b"GNU.sparse") for key in extended):
        raise odd("sparse files are not read; write it without --sparse")
    name, prefix = _text(head[:100]), _text(head[345:500])
    path = prefix + b"/" + name if prefix and head[257:262] == b"ustar" and head[262:263] == b"\0" else name
    path = extended.get(b"path", path)
    target = extended.get(b"linkpath", _text(head[157:257]))
    if not 0 < len(path) <= _MOST_NAME or len(target) > _MOST_NAME or b"\0" in path + target:
        raise odd("a name in it is empty, too long, or holds a zero byte")
    size = _whole(extended[b"size"]) if b"size" in extended else _number(head[124:136])
    called = _KINDS.get(kind) or ("special" if kind in _SPECIAL else None)
    if called is None:
        raise odd(f"it holds an entry of an unknown kind ({kind!r})")
    return Member(
        path=path,
        kind=FOLDER if called == FILE and path.endswith(b"/") else called,
        size=size if called == FILE and not path.endswith(b"/") else 0,
        mode=_number(head[100:108]) & 0o7777,
        uid=_whole(extended[b"uid"]) if b"uid" in extended else _number(head[108:116]),
        gid=_whole(extended[b"gid"]) if b"gid" in extended else _number(head[116:124]),
        mtime=_seconds(extended[b"mtime"]) if b"mtime" in extended else _number(head[136:148]),
        target=target,
        _source=source,
    )


def _checked(head: bytes) -> bytes:
    wanted = _number(head[148:156])
    if sum(head) - sum(head[148:156]) + 8 * 32 != wanted:
        raise odd("it is no tar, or it is damaged")
    return head[156:157]


def _extended(source: Source, head: bytes) -> bytes:
    if (size := _number(head[124:136])) > _MOST_EXTENDED:
        raise odd("a header in it is too large")
    content = _exactly(source, size + -size % _BLOCK)
    if len(content) < size:
        raise odd("it is cut short")
    return content[:size]


def _records(content: bytes) -> dict[bytes, bytes]:
    """Yields the records of a PAX header, each of the form `length key=value\n`."""
    found: dict[bytes, bytes] = {}
    while content:
        digits, space, _ = content.partition(b" ")
        length = _whole(digits) if space and len(digits) < 10 else 0
        record = content[:length]
        key, mark, value = record[len(digits) + 1 : -1].partition(b"=")
        if length <= len(digits) + 1 or len(record) < length or not mark or record[-1:] != b"\n":
            raise odd("a header in it is damaged")
        found[key] = value
        content = content[length:]
    return found


def _text(cell: bytes) -> bytes:
    return cell.partition(b"\0")[0]


def _number(cell: bytes) -> int:
    if cell[:1] in (b"\x80", b"\xff"):
        value = int.from_bytes(cell[1:], "big") if cell[:1] == b"\x80" else -1
    else:
        if (text := cell.strip(b" \0")) and not text.isdigit():
            raise odd("a number in it is damaged")
        try:
            value = int(text or b"0", 8)
        except ValueError:
            raise odd("a number in it is damaged") from None
    if not 0 <= value < 1 << 62:
        raise odd("a number in it makes no sense")
    return value


def _whole(text: bytes) -> int:
    if not text.isdigit() or len(text) > 18:
        raise odd("a number in it is damaged")
    return int(text)


def _seconds(text: bytes) -> int:
    whole = text.partition(b".")[0]
    return 0 if whole.startswith(b"-") else _whole(whole)


def _exactly(source: Source, count: int) -> bytes:
    held = b""
    while len(held) < count:
        if not (chunk := source.read(count - len(held))):
            break
        held += chunk
    return held


END = b"\0" * (2 * _BLOCK)


class Facts(TypedDict):
    mode: int
    uid: int
    gid: int
    mtime: int


def header(
    path: bytes,
    *,
    kind: bytes,
    mode: int,
    size: int = 0,
    uid: int = 0,
    gid: int = 0,
    mtime: int = 0,
    target: bytes = b"",
) -> bytes:
    info = tarfile.TarInfo(os.fsdecode(path))
    info.type, info.mode, info.size = kind, stat.S_IMODE(mode), size
    info.uid, info.gid, info.mtime = uid, gid, max(0, mtime)
    info.linkname = os.fsdecode(target)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def padding(size: int) -> bytes:
    return b"\0" * (-size % _BLOCK)


def file(path: str, content: bytes) -> Iterator[bytes]:
    yield header(path.encode(), kind=tarfile.REGTYPE, mode=0o644, size=len(content))
    yield content + padding(len(content))


def length_of(path: str, size: int) -> int:
    """Returns the length of the whole entry."""
    head = header(path.encode(), kind=tarfile.REGTYPE, mode=0o644, size=size)
    return len(head) + size + len(padding(size))


def in_pieces(chunks: Iterable[bytes], least: int = 256 * 1024) -> Iterator[bytes]:
    """Joins chunks into fewer and larger ones, because sending each costs a turn of the loop."""
    held: list[bytes] = []
    count = 0
    for chunk in chunks:
        held.append(chunk)
        count += len(chunk)
        if count >= least:
            yield b"".join(held)
            held, count = [], 0
    if held:
        yield b"".join(held)


# The names of entries are kept in memory while a layer is applied.
MAX_NAMES_BYTES = 256 << 20
# Steps allowed for each entry that an image may have; an ordinary entry takes two or three.
_STEPS_EACH = 8


@dataclass(slots=True)
class Work:
    """Limits the work that one archive may cause. Work is counted in steps, since elapsed time means nothing
    on a busy host.

    Every step that an archive can cause costs, whether it brings anything or not: an entry, a name, an empty
    packed piece, a name looked at while a folder is cleared.
    """

    bounds: Bounds
    steps: int = 0
    names: int = 0

    def step(self, count: int = 1) -> None:
        """Raises TooLarge if the archive causes more work than any honest one would."""
        self.steps += count
        if self.steps > self.bounds.entries * _STEPS_EACH:
            raise TooLarge(what="image", limit=f"{self.bounds.entries * _STEPS_EACH} steps to unpack it")

    def name(self, path: bytes) -> None:
        self.names += len(path)
        if self.names > MAX_NAMES_BYTES:
            raise TooLarge(what="image", limit=f"{MAX_NAMES_BYTES >> 20} MB of names")
