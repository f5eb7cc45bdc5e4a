"""`cp`: files and folders in or out of a sandbox, with a progress bar.

`unpack` takes a tar that a sandbox sent. Every byte of it is hostile, and we may be root on this host.

`tarfile`'s own filters resolve paths before they write, and have been fooled (CVE-2025-4517). Here nothing is
resolved: each folder is opened from its parent without following links, so that no order of links, however
clever, leads a write out of the target.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.console import Group
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.text import Text

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.output import err, plain, size
from sandboxer.edges.cli.verbs import Answer, verb
from sandboxer.sdk.errors import NotFound, Refused
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox

# An id, the beginning of one, or a name. A single letter is a drive of Windows.
_INSIDE = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._ -]{1,62}):(/.*)$", re.DOTALL)
_HALF_INSIDE = re.compile(r"^sbx_[0-9a-z]{26}:")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
app = typer.Typer(rich_markup_mode="rich")
Count = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Inside:
    sandbox_id: str
    path: str


class _Hostile(Exception):
    """A member that has no place in the target."""


@verb(app, "cp", timeout_s=600.0)
def copy(
    platform: Sandboxer,
    source: Annotated[str, typer.Argument(help="A local path, or NAME:/path, ID:/path.", metavar="SRC")],
    target: Annotated[str, typer.Argument(help="A local path, or NAME:/path, ID:/path.", metavar="DST")],
) -> Answer:
    """Copy files and folders in or out of a sandbox. An existing folder as DST receives SRC below it.

    Links inside a folder that comes out stay links; those that lead out of it are left out, and named.

    Examples:

        sandboxer cp main.py dev:/workspace/

        sandboxer cp ./project dev:/workspace/project

        sandboxer cp dev:/workspace/out .
    """
    come, go = _side(source), _side(target)
    if isinstance(come, Path) and isinstance(go, Inside):
        copied, left_out = _copy_in(platform.sandbox(go.sandbox_id), come, go.path), list[str]()
    elif isinstance(come, Inside) and isinstance(go, Path):
        copied, left_out = _copy_out(platform.sandbox(come.sandbox_id), come.path, go)
    else:
        raise CommandFailed(
            "Exactly one of SRC and DST must be in a sandbox.",
            next_step="Name the inside path as NAME:/path; copy between sandboxes by way of this host.",
        )
    value = {"source": source, "target": target, "bytes": copied, "left_out": left_out}
    lines = [Text.assemble("   ", plain(link)) for link in left_out]
    note = Group("[yellow]Links that lead out of the folder were left out:[/]", *lines) if lines else None
    return Answer(value, f"copied {size(copied)}", note=note)


def _side(text: str) -> Inside | Path:
    if inside := _INSIDE.match(text):
        return Inside(inside[1], inside[2])
    if _HALF_INSIDE.match(text):
        raise CommandFailed(f"{text!r}: the path inside must be absolute", next_step="Write ID:/path.")
    return Path(text)


def _copy_in(sandbox: Sandbox, source: Path, path: str) -> int:
    if not source.exists():
        raise CommandFailed(f"{source} does not exist", next_step="Check the local path.")
    if path.endswith("/") or _is_folder_inside(sandbox, path):
        path = f"{path.rstrip('/')}/{source.resolve().name}"
    if not source.is_dir():
        length = source.stat().st_size
        with progress(f"{source.name} →", length) as count:
            mode = source.stat().st_mode & 0o777
            sandbox.files.write(path, source, mode=mode, progress=count)
        return length
    return copy_folder_in(sandbox, source, path)


def copy_folder_in(sandbox: Sandbox, source: Path, path: str, names: Iterable[str] | None = None) -> int:
    """Copies what is in a folder of this machine, or only what is named, into one inside, made if missing.
    Returns the bytes.
    """
    with tempfile.NamedTemporaryFile(prefix="sandboxer-cp-") as packed:
        with err.status(f"packing {source}"), tarfile.open(fileobj=packed, mode="w") as tar:
            for name in (".",) if names is None else names:
                tar.add(source / name, arcname=name, recursive=names is None, filter=_plain)
        packed.flush()
        sandbox.files.mkdir(path, parents=True)
        length = os.path.getsize(packed.name)
        with progress(f"{source.name}/ →", length) as count:
            sandbox.files.tar_in(path, Path(packed.name), progress=count)
        return length


def _plain(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Owners of this host mean nothing inside: everything arrives as root's."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _copy_out(sandbox: Sandbox, path: str, target: Path) -> tuple[int, list[str]]:
    """How many bytes came, and the links that were left out."""
    info = sandbox.files.stat(path)
    name = path.rstrip("/").rsplit("/", 1)[-1] or sandbox.id
    if target.is_dir():
        target = target / name
    if info.kind != "directory":
        with progress(f"{name} ←", info.size) as count:
            return sandbox.files.download(path, target, progress=count), []
    with progress(f"{name}/ ←", None) as count:
        return _unpack(sandbox.files.tar_out(path), target, count)


def _unpack(chunks: Iterable[bytes], target: Path, count: Count) -> tuple[int, list[str]]:
    stream = Pipe(chunks, count)
    left_out = unpack(cast(IO[bytes], stream), target)
    return stream.seen, left_out


class Pipe:
    """Chunks as a file that can only be read forward."""

    def __init__(self, chunks: Iterable[bytes], count: Count) -> None:
        self._chunks = iter(chunks)
        self._count = count
        self._rest = b""
        self.seen = 0

    def read(self, wanted: int = -1) -> bytes:
        while wanted < 0 or len(self._rest) < wanted:
            if not (chunk := next(self._chunks, b"")):
                break
            self.seen += len(chunk)
            self._count(len(chunk))
            self._rest += chunk
        cut = len(self._rest) if wanted < 0 else wanted
        taken, self._rest = self._rest[:cut], self._rest[cut:]
        return taken


def _is_folder_inside(sandbox: Sandbox, path: str) -> bool:
    try:
        return sandbox.files.stat(path).kind == "directory"
    except NotFound as error:
        if error.code == "path_not_found":
            return False
        raise
    except Refused as error:
        if error.code in ("path_not_found", "not_a_directory"):
            return False
        raise


@contextlib.contextmanager
def progress(label: str, total: int | None) -> Iterator[Count]:
    """Shows a bar on stderr when a person looks; silent otherwise."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        console=err,
        transient=True,
        disable=not err.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.update(task, advance=done)


def unpack(stream: IO[bytes], target: Path) -> list[str]:
    """Writes folders, files and links that stay within: no owners, no setuid, nothing writable by others.

    Returns the links that lead out: they are not made.
    """
    left_out: list[str] = []
    target.mkdir(parents=True, exist_ok=True)
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with tarfile.open(fileobj=stream, mode="r|") as tar:
            for member in tar:
                parts = _parts(member.name)
                if member.issym() and leads_out(parts[:-1], member.linkname):
                    left_out.append(f"{'/'.join(parts)} -> {member.linkname}")
                else:
                    _extract(tar, member, parts, root)
        return left_out
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


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, parts: list[str], root: int) -> None:
    if member.isdir():
        with _folder(root, parts):
            return
    if not parts:
        raise _Hostile(f"{member.name!r} names the folder itself")
    with _folder(root, parts[:-1]) as folder:
        if member.issym():
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


def leads_out(parents: list[str], link: str) -> bool:
    """By its words alone: a courtesy to whoever opens it later. What is written here never follows it."""
    depth = len(parents)
    for part in link.split("/"):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return link.startswith("/")


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
