"""`backup`, `restore`: the platform's state in one file, and back into an empty folder.

`adopt-pool`: put a database and a storage pool together on purpose.

The backup file: a compressed tar whose first member says what is in it, with a checksum for each file.

manifest.json   version, moment, what is in, what is left out, sha256 and mode of every file
sandboxer.db    the records, as of one moment     owner.json, master.key   who owns it, and its seal
profiles/       recipes                           disks/<id>.tar           only with --with-disks
ssh_host_…_key  where there is an SSH gateway
"""

from __future__ import annotations

import asyncio
import hashlib
import io
import json
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from sandboxer import __version__
from sandboxer.access.ssh import HOST_KEY_FILE
from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Folder, Json
from sandboxer.edges.cli.output import columns, err, out, print_json, size
from sandboxer.edges.cli.verbs import Answer, show_answer
from sandboxer.kernel.clock import SystemClock
from sandboxer.kernel.values import is_sandbox_id
from sandboxer.sandboxes.binding import allow_adoption
from sandboxer.settings import Settings, load_settings
from sandboxer.store.backup import back_up, installation_in
from sandboxer.store.backup import restore as restore_database
from sandboxer.store.claim import Installation, ensure_installation
from sandboxer.store.engine import open_store
from sandboxer.store.lock import hold_database, hold_state_dir

DATABASE, OWNER, MASTER = "sandboxer.db", "owner.json", "master.key"
PROFILES = "restored-profiles"
MANIFEST = "manifest.json"
FORMAT = 1
LEFT_OUT = ("images (build them again: sandboxer image build)", "memory of running sandboxes")
DISKS_LEFT_OUT = "disks of sandboxes (take them with --with-disks)"
POSTGRES_LEFT_OUT = "the PostgreSQL database (pg_dump --format=custom it at the same time)"
app = typer.Typer(rich_markup_mode="rich")


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


@app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write (tar.gz, mode 0600).")],
    with_disks: Annotated[
        bool, typer.Option("--with-disks", help="Also what sandboxes wrote to their disks.")
    ] = False,
    state_dir: Folder = None,
    json: Json = False,
) -> None:
    """Copy the platform's state into one file; the platform may be running.

    In it: the SQLite database (of a PostgreSQL one take a pg_dump beside it), owner key, master key, the SSH
    gateway's host key and profiles; with --with-disks each sandbox's disk as a tar (stop or freeze a sandbox
    first if its disk must be of one moment). Not in it: images, which are built again, and memory.
    The database is sealed with the master key: a copy of it alone (a pg_dump, a file copied by hand) cannot
    be served without that key. This file has both, and opens everything the platform keeps secret: store it
    like a key.

    Examples:

        sandboxer backup /backups/$(date +%F).tar.gz

        sandboxer backup --with-disks --state-dir /var/lib/sandboxer full.tar.gz
    """
    settings = load_settings(state_dir=state_dir)
    if file.exists():
        raise CommandFailed(
            f"{file} exists; a backup never overwrites another.", next_step="Name a new file."
        )
    if not file.absolute().parent.is_dir():
        raise CommandFailed(f"{file.parent} is no folder.", next_step="Make it first.")
    with tempfile.TemporaryDirectory(prefix=".backup-", dir=settings.state_dir) as scratch:
        files = [*_database(settings, Path(scratch)), *_small_files(settings)]
        if with_disks:
            files += _disks(settings, Path(scratch))
        left_out = [*LEFT_OUT, *([] if with_disks else [DISKS_LEFT_OUT])]
        left_out += [] if _is_sqlite(settings) else [POSTGRES_LEFT_OUT]
        manifest = write_archive(file.absolute(), files, version=__version__, left_out=left_out)
    _show(manifest, file, json)


@app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(help="A file that `backup` wrote.")],
    state_dir: Folder = None,
    json: Json = False,
) -> None:
    """Bring a backup back into an empty state folder (a folder that holds only images counts as empty).

    The master key comes back with it; a platform starts on no database that another key has sealed.
    Every file is checked before anything is put in place. Sandboxes of the backup that are not on this host
    are marked lost at the next start; their disks, if they are in the backup, wait in DIR/restored-disks as
    tar files, and its profiles in DIR/restored-profiles.

    Examples:

        sandboxer restore /backups/2026-11-15.tar.gz --state-dir /var/lib/sandboxer
    """
    settings = load_settings(state_dir=state_dir)
    if not file.is_file():
        raise CommandFailed(f"{file} does not exist.", next_step="Check the path.")
    with hold_state_dir(settings.state_dir):
        taken = [name for name in (DATABASE, OWNER, MASTER) if (settings.state_dir / name).exists()]
        if taken:
            raise CommandFailed(
                f"{settings.state_dir} is in use: it has {', '.join(taken)}.",
                next_step="Restore into another --state-dir, or move these files away first.",
            )
        with tempfile.TemporaryDirectory(prefix=".restore-", dir=settings.state_dir) as scratch:
            manifest = unpack_archive(file, Path(scratch))
            _put_in_place(Path(scratch), settings)
    _show(manifest, file, json)
    if not json:
        _tell_other_profiles(settings)
        err.print(f"[dim]next:[/] sandboxer up --state-dir {settings.state_dir}")


def _is_sqlite(settings: Settings) -> bool:
    return settings.database_url.startswith("sqlite")


def _database(settings: Settings, scratch: Path) -> Iterator[tuple[str, Path]]:
    if _is_sqlite(settings):
        back_up(settings.database_url, scratch / DATABASE)
        yield DATABASE, scratch / DATABASE


def _small_files(settings: Settings) -> Iterator[tuple[str, Path]]:
    for name, path in ((OWNER, settings.owner_file), (MASTER, settings.master_key_file)):
        if not path.is_file():
            raise CommandFailed(f"{path} is missing.", next_step="Start the platform once, then back it up.")
        yield name, path
    if (settings.state_dir / HOST_KEY_FILE).is_file():
        yield HOST_KEY_FILE, settings.state_dir / HOST_KEY_FILE
    for path in sorted(settings.profiles_dir.glob("*.y*ml")):
        yield f"profiles/{path.name}", path


def _disks(settings: Settings, scratch: Path) -> Iterator[tuple[str, Path]]:
    pool = settings.state_dir / "pool"
    folders = sorted(path for path in pool.iterdir() if is_sandbox_id(path.name)) if pool.is_dir() else []
    for disk in folders:
        packed = scratch / f"{disk.name}.tar"
        with err.status(f"packing the disk of {disk.name}"):
            pack_disk(disk, packed)
        yield f"disks/{disk.name}.tar", packed


def _put_in_place(scratch: Path, settings: Settings) -> None:
    """Secrets first, the database last: a half restored folder has no records to be misread."""
    for name in (MASTER, OWNER, HOST_KEY_FILE):
        if (scratch / name).exists() or name != HOST_KEY_FILE:
            os.replace(scratch / name, settings.state_dir / name)
    for folder, place in (("profiles", PROFILES), ("disks", "restored-disks")):
        if (scratch / folder).is_dir():
            os.replace(scratch / folder, settings.state_dir / place)
    if (scratch / DATABASE).exists():
        installation = installation_in(scratch / DATABASE)
        restore_database(scratch / DATABASE, settings.database_url)
        # On purpose: disks that are still here may be newer than these records.
        allow_adoption(settings.state_dir, installation)
    elif not _is_sqlite(settings):
        allow_adoption(settings.state_dir, asyncio.run(identify(settings)).id)


def _tell_other_profiles(settings: Settings) -> None:
    """The next start reads this host's profiles, not the restored ones: the difference is told."""
    restored = settings.state_dir / PROFILES
    theirs = {path.name: path.read_bytes() for path in sorted(restored.glob("*.y*ml"))}
    here = {path.name: path.read_bytes() for path in settings.profiles_dir.glob("*.y*ml")}
    if other := [name for name, content in theirs.items() if here.get(name) != content]:
        are = "profile is" if len(other) == 1 else "profiles are"
        err.print(f"{len(other)} {are} not as in the backup: {', '.join(other)}", markup=False)
        err.print(
            f"To have them so: copy them from {restored} to {settings.profiles_dir},"
            " or set SANDBOXER_PROFILES_DIR",
            markup=False,
        )


def _show(manifest: Manifest, file: Path, json: bool) -> None:
    if json:
        entries = {entry.name: {"sha256": entry.sha256, "size": entry.size} for entry in manifest.entries}
        report = {"file": str(file), "created_at": manifest.created_at, "files": entries}
        print_json(report | {"left_out": list(manifest.left_out)})
        return
    out.print(columns([(entry.name, size(entry.size)) for entry in manifest.entries], "FILE", "SIZE"))
    out.print("[dim]left out:[/]", "; ".join(manifest.left_out))


@app.command("adopt-pool")
def adopt_pool(
    state_dir: Folder = None,
    database: Annotated[str | None, typer.Option(help="Database URL; SQLite in DIR if not given.")] = None,
    json: Json = False,
) -> None:
    """Put a database and a storage pool together on purpose.

    The next start uses both, whatever they were used with before.

    Needed after a dump was restored by the database's own tools, or when the old database is lost for good.
    The platform must be stopped. Every disk stays: those that the database has no record of are shown by
    `sandboxer inspect stale`, and go after `quarantine_grace` or by `sandboxer reap-stale`.

    Examples:

        sandboxer adopt-pool --state-dir /var/lib/sandboxer

        sandboxer adopt-pool --database postgresql://user@db/sandboxer
    """
    settings = load_settings(state_dir=state_dir, database=database)
    with hold_state_dir(settings.state_dir), hold_database(settings.database_url):
        installation = asyncio.run(identify(settings))
        allow_adoption(settings.state_dir, installation.id)
    said = f"The next start adopts the storage pool in {settings.state_dir} for {installation.id}."
    then = f"[dim]next:[/] sandboxer up --state-dir {settings.state_dir}, then sandboxer inspect stale"
    value = {"installation": installation.id, "state_dir": str(settings.state_dir)}
    show_answer(Answer(value, said, note=then), is_json=json)


async def identify(settings: Settings) -> Installation:
    """Says which installation the database is; it gets its id here if it has none."""
    store = await asyncio.to_thread(open_store, settings.database_url)
    try:
        return await store.write(lambda conn: ensure_installation(conn, now=SystemClock().now()))
    finally:
        await store.close()


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
        content = json.loads(file.read())
        entries = tuple(Entry(**entry) for entry in content["entries"])
        manifest = Manifest(
            content["format"], content["created_at"], content["version"], entries, tuple(content["left_out"])
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
