"""`backup`, `restore`: the platform's state in one file, and back into an empty folder."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from sandboxer import __version__
from sandboxer.access.ssh.room import HOST_KEY_FILE
from sandboxer.edges.cli.adoption import identify
from sandboxer.edges.cli.archive import (
    DISKS_LEFT_OUT,
    LEFT_OUT,
    POSTGRES_LEFT_OUT,
    Manifest,
    pack_disk,
    unpack_archive,
    write_archive,
)
from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import columns, err, out, print_json, size
from sandboxer.kernel.ids import is_sandbox_id
from sandboxer.sandboxes.binding import allow_adoption
from sandboxer.settings import Settings, load_settings
from sandboxer.store.backup import back_up, installation_in
from sandboxer.store.backup import restore as restore_database
from sandboxer.store.lock import hold_state_dir

app = typer.Typer(rich_markup_mode="rich")
DATABASE, OWNER, MASTER = "sandboxer.db", "owner.json", "master.key"
PROFILES = "restored-profiles"

Where = Annotated[Path | None, typer.Option("--state-dir", metavar="DIR", help="State folder.")]


@app.command("backup")
def backup(
    file: Annotated[Path, typer.Argument(help="The file to write (tar.gz, mode 0600).")],
    with_disks: Annotated[
        bool, typer.Option("--with-disks", help="Also what sandboxes wrote to their disks.")
    ] = False,
    state_dir: Where = None,
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
    state_dir: Where = None,
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
    other = [name for name, content in theirs.items() if here.get(name) != content]
    if other:
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
        told = {"file": str(file), "created_at": manifest.created_at, "files": entries}
        print_json(told | {"left_out": list(manifest.left_out)})
        return
    out.print(columns([(entry.name, size(entry.size)) for entry in manifest.entries], "FILE", "SIZE"))
    out.print("[dim]left out:[/]", "; ".join(manifest.left_out))
