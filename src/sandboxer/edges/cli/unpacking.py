"""Unpacks a tar that a sandbox sent. Every byte of it is hostile, and we may be root on this host.

`tarfile`'s own filters resolve paths before they write, and have been fooled (CVE-2025-4517). Here nothing is
resolved: each folder is opened from its parent without following links, so that no order of links, however
clever, leads a write out of the target.
"""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from sandboxer.edges.cli.exits import CommandFailed

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class _Hostile(Exception):
    """A member that has no place in the target."""


def unpack(stream: IO[bytes], target: Path) -> None:
    """Folders, files and links that stay within; no owners, no setuid, nothing writable by others."""
    target.mkdir(parents=True, exist_ok=True)
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                _take(tar, member, root)
    except _Hostile as error:
        raise CommandFailed(
            f"The sandbox sent a file that would land outside {target}: {error}",
            next_step="Nothing further was copied; look at the folder inside.",
        ) from None
    except tarfile.TarError as error:
        raise CommandFailed(
            f"The sandbox did not send a whole tar: {error}", next_step="Look at the folder inside."
        ) from None
    except OSError as error:
        raise CommandFailed(
            f"Not all could be written to {target}: {error.strerror}",
            next_step="Make room, or copy into a new folder; links that are there are not followed.",
        ) from None
    finally:
        os.close(root)


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, root: int) -> None:
    parts = _parts(member.name)
    if member.isdir():
        with _folder(root, parts):
            return
    if not parts:
        raise _Hostile(f"{member.name!r} names the folder itself")
    with _folder(root, parts[:-1]) as folder:
        if member.issym():
            _check_link(parts[:-1], member)
            _make_room(parts[-1], folder)
            os.symlink(member.linkname, parts[-1], dir_fd=folder)
        elif member.islnk():
            _link(root, _parts(member.linkname), parts, folder)
        elif member.isfile():
            _make_room(parts[-1], folder)
            _write(tar, member, parts[-1], folder)
        else:
            raise _Hostile(f"{member.name!r} is neither file, folder nor link")


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, name: str, folder: int) -> None:
    content = tar.extractfile(member)
    assert content is not None, "a regular file has content"
    mode = (member.mode & 0o755) | 0o600
    with os.fdopen(os.open(name, _NEW_FILE, 0o600, dir_fd=folder), "wb") as file:
        shutil.copyfileobj(content, file, 1 << 20)
        os.fchmod(file.fileno(), mode)


def _link(root: int, source: list[str], parts: list[str], folder: int) -> None:
    if source == parts or not source:
        raise _Hostile(f"{'/'.join(parts)!r} is a link to itself")
    with _folder(root, source[:-1]) as origin:
        _make_room(parts[-1], folder)
        os.link(source[-1], parts[-1], src_dir_fd=origin, dst_dir_fd=folder, follow_symlinks=False)


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise _Hostile(repr(name))
    return parts


def _check_link(parents: list[str], member: tarfile.TarInfo) -> None:
    """By its words alone: a courtesy to whoever opens it later. What is written here never follows it."""
    depth = len(parents)
    for part in member.linkname.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            break
    if depth < 0 or member.linkname.startswith("/"):
        raise _Hostile(f"{member.name!r} points to {member.linkname!r}")


@contextmanager
def _folder(root: int, parts: list[str]) -> Iterator[int]:
    """An open folder below the root, made if need be. A link in its place is an error (ELOOP, ENOTDIR)."""
    at = os.dup(root)
    try:
        for part in parts:
            with suppress(FileExistsError):
                os.mkdir(part, 0o755, dir_fd=at)
            below = os.open(part, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        yield at
    finally:
        os.close(at)


def _make_room(name: str, folder: int) -> None:
    """What is there is replaced, not written through: it may be a link."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)
