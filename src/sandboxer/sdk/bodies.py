"""Request bodies that know their hash before they are sent.

Signature v2 names the body's sha256 in the head, so a file on disk is read twice (hash, then send) and a
stream of unknown length is spooled to a temporary file first. A body can be opened again for a retry.

`appearing` writes what came out of a sandbox to a local file.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple, TypedDict
from urllib.parse import quote

from sandboxer.sdk.credentials import EMPTY_SHA256
from sandboxer.sdk.ignoring import sent

CHUNK = 1 << 20
# Streams smaller than this never touch the disk.
SPOOL_IN_MEMORY = 4 << 20
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
Content = bytes | str | Path | IO[bytes] | Iterable[bytes]
Progress = Callable[[int], None]
# `volume`, `path` and `mode` of each.
VolumesIn = Sequence[Mapping[str, str]]
# Path inside (below /workspace unless absolute) to content, or to a local file.
FilesIn = Mapping[str, bytes | str | Path]


class PullOptions(TypedDict, total=False):
    """What to make of an image of a registry, and how to ask for it."""

    name: str | None
    description: str | None
    visibility: str | None
    clean: bool | None
    profile: str | None
    # Its `username` and `password`.
    user: Mapping[str, str] | None
    plain_http: bool | None


class BuildOptions(TypedDict, total=False):
    """What to build of a folder, and what to make of it."""

    description: str | None
    visibility: str | None
    clean: bool | None
    profile: str | None
    # The Dockerfile, by its path in the folder.
    file: str | None
    target: str | None
    # NAME=VALUE of each.
    arg: Sequence[str] | None
    start: str | None
    ready: str | None
    cache: bool | None


class SandboxOptions(TypedDict, total=False):
    """What may be said of a sandbox that is made for something; the rest is as its profile says."""

    name: str | None
    profile: str | None
    trust: str | None
    network: str | None
    ttl: str | None
    resources: Mapping[str, float] | None
    # `volume`, `path` and `mode` of each.
    volumes: VolumesIn | None


class CloneOptions(SandboxOptions, total=False):
    """How sandboxes are made that begin as a snapshot or an image; it says what is not given."""

    idle_timeout: str | None
    env: Mapping[str, str] | None
    labels: Mapping[str, str] | None


class Body(NamedTuple):
    """Bytes to send: their hash, their length and a way to read them from the start."""

    sha256: str
    length: int
    open: Callable[[], Iterator[bytes]]


def _nothing() -> Iterator[bytes]:
    return iter(())


NO_BODY = Body(sha256=EMPTY_SHA256, length=0, open=_nothing)


def body_of(content: Content) -> Body:
    """A `str` is text to send, a `Path` names a file to send."""
    if isinstance(content, str):
        content = content.encode()
    if isinstance(content, bytes | bytearray | memoryview):
        data = bytes(content)
        return Body(hashlib.sha256(data).hexdigest(), len(data), lambda: iter((data,) if data else ()))
    if isinstance(content, Path):
        return _file_body(content)
    return _spooled_body(content)


def packed(folder: Path, dockerfile: str = "Dockerfile") -> Body:
    """Packs a folder as one tar, without what its `.dockerignore` names. Links are links: what they lead to
    is not sent.
    """
    spool = tempfile.SpooledTemporaryFile(max_size=SPOOL_IN_MEMORY)  # noqa: SIM115
    with tarfile.open(fileobj=spool, mode="w") as tar:
        tar.add(folder, arcname=".", recursive=False)
        for path in sent(folder, dockerfile):
            tar.add(folder / path, arcname=f"./{path}", recursive=False)
    spool.seek(0)
    return _spooled_body(spool)


def watched(body: Body, progress: Progress | None) -> Body:
    """The same body, telling `progress` about every chunk that is sent."""
    if progress is None:
        return body

    def read() -> Iterator[bytes]:
        for chunk in body.open():
            yield chunk
            progress(len(chunk))

    return Body(body.sha256, body.length, read)


def _file_body(path: Path) -> Body:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        length = file.tell()

    def read() -> Iterator[bytes]:
        with path.open("rb") as file:
            # Never more than was hashed: a file that grows meanwhile would break the length we announced.
            left = length
            while left and (chunk := file.read(min(CHUNK, left))):
                left -= len(chunk)
                yield chunk

    return Body(digest, length, read)


def _spooled_body(stream: IO[bytes] | Iterable[bytes]) -> Body:
    # Lives as long as the Body that refers to it; the file has no name, so nothing can be left behind.
    spool = tempfile.SpooledTemporaryFile(max_size=SPOOL_IN_MEMORY)  # noqa: SIM115
    digest = hashlib.sha256()
    length = 0
    for chunk in _chunks(stream):
        digest.update(chunk)
        length += len(chunk)
        spool.write(chunk)

    def read() -> Iterator[bytes]:
        spool.seek(0)
        while chunk := spool.read(CHUNK):
            yield chunk

    return Body(digest.hexdigest(), length, read)


def _chunks(stream: IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    if (read := getattr(stream, "read", None)) is None:
        yield from stream
        return
    while chunk := read(CHUNK):
        yield chunk


# -- values in JSON, which has no bytes ---------------------------------------------------------------------
def labelled(labels: Mapping[str, str] | None) -> Sequence[str]:
    """Labels as a query names them."""
    return [f"{name}={value}" for name, value in (labels or {}).items()]


def files_in(files: FilesIn | None) -> Sequence[Mapping[str, object]] | None:
    """Small files that travel in a JSON body."""
    return None if files is None else [_file(path, content) for path, content in files.items()]


def _file(path: str, content: bytes | str | Path) -> Mapping[str, object]:
    if isinstance(content, str):
        return {"path": path, "content": content}
    mode = None
    if isinstance(content, Path):
        mode = content.stat().st_mode & 0o777
        content = content.read_bytes()
    kept: dict[str, object] = {
        "path": path,
        "content": base64.b64encode(content).decode(),
        "encoding": "base64",
    }
    return kept if mode is None else {**kept, "mode": mode}


def paths_in(*paths: str) -> tuple[Sequence[str], str | None]:
    """Names that are not UTF-8 travel percent-encoded, all paths of a request alike; and how they do."""
    if all(_is_text(path) for path in paths):
        return paths, None
    return [quote(path.encode("utf-8", "surrogateescape")) for path in paths], "percent"


def _is_text(path: str) -> bool:
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextmanager
def appearing(path: Path) -> Iterator[IO[bytes]]:
    """A file that has its name when the block ends well, and never was otherwise.

    A new one under a name nobody can guess: a link that waits in its place would lead the bytes elsewhere.
    """
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(draft, _NEW, 0o666), "wb") as file:
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
