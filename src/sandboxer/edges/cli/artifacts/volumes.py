"""`sandboxer volume`: disks that outlive sandboxes."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from sandboxer.edges.cli.options import pairs
from sandboxer.edges.cli.output import ago, columns, facts_table, plain, size, until
from sandboxer.edges.cli.verbs import Answer, each, group, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.volumes import Volume

app = group("Keep disks that outlive sandboxes.")
groups = {"volume": app}

Ref = Annotated[str, typer.Argument(help="Its name, or its id (vol_…).", metavar="VOLUME")]
LabelOption = Annotated[list[str] | None, typer.Option("--label", help="NAME=VALUE; repeatable.")]
_STYLES = {"ready": "green", "unpaid": "yellow", "lost": "bold red", "failed": "bold red"}


@verb(app, "create", timeout_s=180.0)
def create(
    platform: Sandboxer,
    name: Annotated[str, typer.Argument(help="A name of yours that is free.", metavar="NAME")],
    size_mb: Annotated[int | None, typer.Option(help="What it may hold, in MiB.")] = None,
    from_snapshot: Annotated[
        str | None, typer.Option(help="Begin as a copy of this snapshot of a volume.")
    ] = None,
    label: LabelOption = None,
) -> object:
    """Make a volume; attach it with `sandboxer create --volume NAME:/path`.

    Examples:

        sandboxer volume create data --size-mb 1024

        sandboxer volume create data-copy --from-snapshot snp_0123456789abcdefghjkmnpqrs
    """
    return _show(
        platform.volumes.create(
            name, size_mb=size_mb, from_snapshot=from_snapshot, labels=pairs(label, "--label")
        )
    )


@verb(app, "list")
def list_volumes(
    platform: Sandboxer,
    state: Annotated[str | None, typer.Option(help="Only those in this state, dropped ones too.")] = None,
) -> Answer:
    """List volumes, newest first.

    Examples:

        sandboxer volume list
    """
    found = list(platform.volumes.list(state=state))
    rows = [
        (one.name, one.id, _state(one.state), size(one.size_mb << 20), _holders(one), ago(one.created_at))
        for one in found
    ]
    return Answer(found, columns(rows, "NAME", "ID", "STATE", "SIZE", "ATTACHED", "MADE"))


@verb(app, "show")
def show(platform: Sandboxer, volume: Ref) -> Answer:
    """Show one volume, what it holds, and who has it.

    Examples:

        sandboxer volume show data
    """
    found = platform.volumes.get(volume)
    return Answer(found, facts_table(_facts(found)))


@verb(app, "resize")
def resize(
    platform: Sandboxer,
    volume: Ref,
    size_mb: Annotated[int, typer.Argument(help="What it may hold from now on, in MiB.", metavar="MIB")],
) -> object:
    """Make it larger or smaller, at once, also while it is attached; not below what it holds.

    Examples:

        sandboxer volume resize data 2048
    """
    return _show(platform.volumes.change(volume, size_mb=size_mb))


@verb(app, "rename")
def rename(
    platform: Sandboxer,
    volume: Ref,
    name: Annotated[str, typer.Argument(help="A name of yours that is free.", metavar="NAME")],
) -> object:
    """Give it another name; its id stays, and so does what has it attached.

    Examples:

        sandboxer volume rename data data-2026
    """
    return _show(platform.volumes.change(volume, name=name))


@verb(app, "restore", may_need_proof=True, timeout_s=180.0)
def restore(
    platform: Sandboxer,
    volume: Ref,
    snapshot: Annotated[str, typer.Argument(help="A snapshot of a volume (snp_…).", metavar="SNAPSHOT")],
) -> object:
    """Put a volume back to what a snapshot has; what is on it now is lost.

    Refused while a sandbox uses it: stop that first, and resume it afterwards.

    Examples:

        sandboxer volume restore data snp_0123456789abcdefghjkmnpqrs
    """
    return _show(platform.volumes.restore(volume, snapshot))


@verb(app, "snapshot", timeout_s=180.0)
def snapshot(
    platform: Sandboxer,
    volume: Ref,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", help="Drop it after this long: 4h, 7d.")] = None,
    label: LabelOption = None,
) -> Answer:
    """Keep a volume as it is now; whoever writes to it goes on.

    Examples:

        sandboxer volume snapshot data --name before-migration
    """
    made = platform.volumes.snapshot(volume, name=name, ttl=ttl, labels=pairs(label, "--label"))
    return Answer(made, plain(made.id), made.state, f"[dim]{made.took_ms.get('take', 0):.1f} ms[/]")


@verb(app, "lock")
def lock(platform: Sandboxer, volume: Ref) -> object:
    """Guard a volume by a second proof: it is not dropped by a request alone.

    Examples:

        sandboxer volume lock data
    """
    return _show(platform.volumes.lock(volume))


@verb(app, "unlock", may_need_proof=True)
def unlock(platform: Sandboxer, volume: Ref) -> object:
    """Take that guard away, with a second proof.

    Examples:

        sandboxer volume unlock data --wallet ~/.wallet.key
    """
    return _show(platform.volumes.unlock(volume))


@verb(app, "remove", may_need_proof=True, timeout_s=180.0)
def remove(
    platform: Sandboxer,
    volumes: Annotated[list[str], typer.Argument(help="Names or ids of volumes.", metavar="VOLUME…")],
) -> Answer:
    """Drop volumes and all that is on them. One that is attached is refused.

    Examples:

        sandboxer volume remove data
    """
    return each(_show(platform.volumes.remove(one)) for one in volumes)


def _show(volume: Volume) -> Answer:
    words = plain(volume.name), plain(volume.id), _state(volume.state), size(volume.size_mb << 20)
    return Answer(volume, *words, "locked" if volume.locked_at else "")


def _facts(one: Volume) -> list[tuple[str, object]]:
    return [
        ("name", one.name),
        ("id", one.id),
        ("state", f"{one.state} ({one.reason})"),
        ("size", size(one.size_mb << 20)),
        ("holds", None if one.used_bytes is None else size(one.used_bytes)),
        ("attached", _holders(one)),
        ("from", one.from_snapshot),
        ("costs", f"{one.rate_msats_per_s} msats/s" if one.rate_msats_per_s else None),
        ("labels", " ".join(f"{key}={value}" for key, value in one.labels.items())),
        ("made", ago(one.created_at)),
        ("goes", until(one.expires_at)),
        ("locked", ago(one.locked_at)),
    ]


def _holders(one: Volume) -> str:
    return " ".join(f"{each.sandbox_id}:{each.path}:{each.mode}" for each in one.attachments)


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, "dim"))
