"""The backup file: a compressed tar whose first member says what is in it, with a checksum for each file.

manifest.json   version, moment, what is in, what is left out, sha256 and mode of every file
sandboxer.db    the records, as of one moment     owner.json, master.key   who owns it, and its seal
profiles/       recipes                           disks/<id>.tar           only with --with-disks
ssh_host_…_key  where there is an SSH gateway
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from sandboxer.edges.cli.exits import CommandFailed

MANIFEST = "manifest.json"
FORMAT = 1
LEFT_OUT = ("images (build them again: sandboxer image build)", "memory of running sandboxes")
DISKS_LEFT_OUT = "disks of sandboxes (take them with --with-disks)"
POSTGRES_LEFT_OUT = "the PostgreSQL database (pg_dump --format=custom it at the same time)"


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    sha256: str
    size: int
    mode: int


@dataclass(frozen=True, slots=True)
class Manifest:
    format: int
    created_at: str
    version: str
    entries: tuple[Entry, ...]
    left_out: tuple[str, ...]

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)


def write_archive(
    target: Path, files: Sequence[tuple[str, Path]], *, version: str, left_out: Sequence[str]
) -> Manifest:
    """All or nothing: the file appears complete, mode 0600, or not at all."""
    entries = tuple(_entry(name, path) for name, path in files)
    manifest = Manifest(FORMAT, datetime.now(UTC).isoformat(), version, entries, tuple(left_out))
    fd, draft = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(fd, "wb") as raw, tarfile.open(fileobj=raw, mode="w:gz", compresslevel=3) as tar:
            _add_text(tar, MANIFEST, manifest.to_json())
            for name, path in files:
                tar.add(path, arcname=name, recursive=False, filter=_anonymous)
        os.replace(draft, target)
    except BaseException:
        Path(draft).unlink(missing_ok=True)
        raise
    return manifest


def unpack_archive(source: Path, into: Path) -> Manifest:
    """Into an empty folder, every file checked against the manifest. Nothing else is taken from the file."""
    try:
        with tarfile.open(source, mode="r:gz") as tar:
            manifest = _read_manifest(tar)
            for entry in manifest.entries:
                _take(tar, entry, into)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise CommandFailed(
            f"{source} cannot be read as a backup: {error}", next_step="Try another copy."
        ) from None
    return manifest


def pack_disk(disk: Path, target: Path) -> None:
    """What a sandbox wrote over its image, with owners and attributes as inside."""
    argv = ["tar", "--xattrs", "--xattrs-include=*", "--numeric-owner", "--sparse", "-C", str(disk)]
    done = subprocess.run([*argv, "-cf", str(target), "upper"], capture_output=True, text=True, check=False)
    # 1: a file changed while it was read, as it may in a running sandbox.
    if done.returncode not in (0, 1):
        raise CommandFailed(f"The disk {disk} could not be read: {done.stderr.strip()}")


def _entry(name: str, path: Path) -> Entry:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    seen = path.stat()
    return Entry(name, digest, seen.st_size, seen.st_mode & 0o777)


def _add_text(tar: tarfile.TarFile, name: str, text: str) -> None:
    data = text.encode()
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o600
    tar.addfile(member, io.BytesIO(data))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def _read_manifest(tar: tarfile.TarFile) -> Manifest:
    first = tar.next()
    file = None if first is None or first.name != MANIFEST else tar.extractfile(first)
    if file is None:
        raise CommandFailed(
            "This is no backup: it has no manifest.", next_step="Name a file that backup wrote."
        )
    try:
        told = json.loads(file.read())
        entries = tuple(Entry(**entry) for entry in told["entries"])
        manifest = Manifest(
            told["format"], told["created_at"], told["version"], entries, tuple(told["left_out"])
        )
    except (ValueError, TypeError, KeyError) as error:
        raise CommandFailed(
            f"The backup's manifest is damaged: {error}", next_step="Try another copy."
        ) from None
    if manifest.format != FORMAT:
        raise CommandFailed(
            f"The backup has format {manifest.format}, this version reads {FORMAT}.",
            next_step=f"Restore it with sandboxer {manifest.version}.",
        )
    return manifest


def _take(tar: tarfile.TarFile, entry: Entry, into: Path) -> None:
    parts = Path(entry.name).parts
    if Path(entry.name).is_absolute() or ".." in parts:
        raise CommandFailed(
            f"The backup names {entry.name!r}, outside its folder.", next_step="Do not trust it."
        )
    try:
        file = tar.extractfile(entry.name)
    except KeyError:
        file = None
    if file is None:
        raise CommandFailed(f"The backup lacks {entry.name}.", next_step="Try another copy.")
    path = into / entry.name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest = hashlib.sha256()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as copy:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
            copy.write(chunk)
    if digest.hexdigest() != entry.sha256:
        raise CommandFailed(f"{entry.name} in the backup is damaged.", next_step="Try another copy.")
    is_secret = entry.name in ("owner.json", "master.key", "ssh_host_ed25519_key")
    path.chmod(entry.mode & 0o700 if is_secret else entry.mode)
