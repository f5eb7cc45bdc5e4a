"""`cp`: files and folders in or out of a sandbox, with a progress bar."""

from __future__ import annotations

import contextlib
import os
import re
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, cast

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import err, out, print_json, size
from sandboxer.edges.cli.unpacking import unpack
from sandboxer.sdk.errors import NotFound, Refused
from sandboxer.sdk.sync.sandbox import Sandbox

app = typer.Typer(rich_markup_mode="rich")
_INSIDE = re.compile(r"^(sbx_[0-9a-z]{26}):(.*)$", re.DOTALL)
Count = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class Inside:
    sandbox_id: str
    path: str


@app.command("cp")
def copy(
    source: Annotated[str, typer.Argument(help="A local path, or ID:/path.", metavar="SRC")],
    target: Annotated[str, typer.Argument(help="A local path, or ID:/path.", metavar="DST")],
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Copy files and folders in or out of a sandbox. An existing folder as DST receives SRC below it.

    Examples:

        sandboxer cp main.py sbx_0123456789abcdefghjkmnpqrs:/workspace/

        sandboxer cp ./project sbx_0123456789abcdefghjkmnpqrs:/workspace/project

        sandboxer cp sbx_0123456789abcdefghjkmnpqrs:/workspace/out .
    """
    come, go = _side(source), _side(target)
    with client(url, state_dir, timeout_s=600.0) as platform:
        if isinstance(come, Path) and isinstance(go, Inside):
            copied = _copy_in(platform.sandbox(go.sandbox_id), come, go.path)
        elif isinstance(come, Inside) and isinstance(go, Path):
            copied = _copy_out(platform.sandbox(come.sandbox_id), come.path, go)
        else:
            raise CommandFailed(
                "Exactly one of SRC and DST must be in a sandbox.",
                next_step="Name the inside path as ID:/path; copy between sandboxes by way of this host.",
            )
    if json:
        print_json({"source": source, "target": target, "bytes": copied})
    else:
        out.print(f"copied {size(copied)}")


def _side(text: str) -> Inside | Path:
    inside = _INSIDE.match(text)
    if inside is None:
        return Path(text)
    if not inside[2].startswith("/"):
        raise CommandFailed(f"{text!r}: the path inside must be absolute", next_step="Write ID:/path.")
    return Inside(inside[1], inside[2])


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
    with tempfile.NamedTemporaryFile(prefix="sandboxer-cp-") as packed:
        with err.status(f"packing {source}"), tarfile.open(fileobj=packed, mode="w") as tar:
            tar.add(source, arcname=".", filter=_plain)
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


def _copy_out(sandbox: Sandbox, path: str, target: Path) -> int:
    info = sandbox.files.stat(path)
    name = path.rstrip("/").rsplit("/", 1)[-1] or sandbox.id
    if target.is_dir():
        target = target / name
    if info.kind != "directory":
        with progress(f"{name} ←", info.size) as count:
            return sandbox.files.download(path, target, progress=count)
    with progress(f"{name}/ ←", None) as count:
        return _unpack(sandbox.files.tar_out(path), target, count)


def _unpack(chunks: Iterable[bytes], target: Path, count: Count) -> int:
    stream = Pipe(chunks, count)
    unpack(cast(IO[bytes], stream), target)
    return stream.seen


class Pipe:
    """Chunks as a file that can only be read forward."""

    def __init__(self, chunks: Iterable[bytes], count: Count) -> None:
        self._chunks = iter(chunks)
        self._count = count
        self._rest = b""
        self.seen = 0

    def read(self, wanted: int = -1) -> bytes:
        while wanted < 0 or len(self._rest) < wanted:
            chunk = next(self._chunks, b"")
            if not chunk:
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
    """A bar on stderr when a person looks; silent otherwise."""
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
