"""`sandboxer volume`: disks that outlive sandboxes."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from sandboxer.edges.cli.options import pairs, sized
from sandboxer.edges.cli.output import ago, columns, disk_state, facts_table, plain, size, until
from sandboxer.edges.cli.verbs import Answer, Row, each, group, noun, rows, verb
from sandboxer.sdk.sync.artifacts import Volumes
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.volumes import Volume

app = group("Keep disks that outlive sandboxes.")
groups = {"volume": app}

Ref = Annotated[str, typer.Argument(help="Its name, or its id (vol_…).", metavar="VOLUME")]
FreeName = Annotated[str, typer.Argument(help="A name of yours that is free.", metavar="NAME")]
LabelOption = Annotated[list[str] | None, typer.Option("--label", help="NAME=VALUE; repeatable.")]


def _show(volume: Volume) -> Answer:
    words = plain(volume.name), plain(volume.id), disk_state(volume.state), size(volume.size_mb << 20)
    return Answer(volume, *words, "locked" if volume.locked_at else "")


@verb(app, "create", timeout_s=180.0)
def create(
    platform: Sandboxer,
    name: FreeName,
    size_mb: Annotated[int | None, sized("--size", "What it may hold.")] = None,
    from_snapshot: Annotated[
        str | None, typer.Option(help="Begin as a copy of this snapshot of a volume.")
    ] = None,
    label: LabelOption = None,
) -> object:
    """Make a volume; attach it with `sandboxer create --volume NAME:/path`.

    Examples:

        sandboxer volume create data --size 1g

        sandboxer volume create data-copy --from-snapshot ready
    """
    if size_mb is None and from_snapshot is None:
        raise typer.BadParameter("say how large it shall be: --size 1g")
    return _show(
        platform.volumes.create(
            name, size_mb=size_mb, from_snapshot=from_snapshot, labels=pairs(label, "--label")
        )
    )


@verb(app, "list")
def list_volumes(
    platform: Sandboxer,
    state: Annotated[str | None, typer.Option(help="Only those in this state, deleted ones too.")] = None,
) -> Answer:
    """List volumes, newest first.

    Examples:

        sandboxer volume list
    """
    found = list(platform.volumes.list(state=state))
    rows = [
        (one.name, one.id, disk_state(one.state), size(one.size_mb << 20), _holders(one), ago(one.created_at))
        for one in found
    ]
    table = columns(rows, "NAME", "ID", "STATE", "SIZE", "ATTACHED", "MADE")
    return Answer(found, table, make="volume create NAME --size 1g")


@verb(app, "show")
def show(platform: Sandboxer, volume: Ref) -> Answer:
    """Show one volume, what it holds, and who has it.

    Examples:

        sandboxer volume show data
    """
    found = platform.volumes.get(volume)
    return Answer(found, facts_table(_facts(found)))


of_volumes = partial(rows, app, noun("volumes"), {"volume": Ref})
of_volumes(
    _show,
    Row(
        "update",
        Volumes.change,
        "Give it another size or name, also while it is attached; it gets no smaller than what it holds.",
        "volume update data --size 2g",
        {
            "size_mb": (Annotated[int | None, sized("--size", "What it may hold.")], None),
            "name": (Annotated[str | None, typer.Option(help="Another name that is free.")], None),
        },
    ),
)


of_volumes(
    _show,
    Row(
        "restore",
        Volumes.restore,
        "Put a volume back to what a snapshot has; what is on it now is lost.\n\n"
        "Refused while a sandbox uses it: stop that first, and resume it afterwards.",
        "volume restore data ready",
        {
            "snapshot": Annotated[
                str, typer.Argument(help="A snapshot of a volume (snp_…).", metavar="SNAPSHOT")
            ]
        },
        may_need_proof=True,
    ),
    timeout_s=180.0,
)


@verb(app, "snapshot", timeout_s=180.0)
def snapshot(
    platform: Sandboxer,
    volume: Ref,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    ttl: Annotated[str | None, typer.Option("--ttl", help="Delete it after this long: 4h, 7d.")] = None,
    label: LabelOption = None,
) -> Answer:
    """Keep a volume as it is now; whoever writes to it goes on.

    Examples:

        sandboxer volume snapshot data --name before-migration
    """
    made = platform.volumes.snapshot(volume, name=name, ttl=ttl, labels=pairs(label, "--label"))
    return Answer(made, plain(made.id), made.state, f"[dim]{made.took_ms.get('take', 0):.1f} ms[/]")


of_volumes(
    _show,
    Row(
        "lock",
        Volumes.lock,
        "Guard a volume by a second proof: it is not deleted by a request alone.",
        "volume lock data",
    ),
    Row(
        "unlock",
        Volumes.unlock,
        "Take that guard away, with a second proof.",
        "volume unlock data --wallet ~/.wallet.key",
        may_need_proof=True,
    ),
)


@verb(app, "delete", may_need_proof=True, timeout_s=180.0)
def remove(
    platform: Sandboxer,
    volumes: Annotated[list[str], typer.Argument(help="Names or ids of volumes.", metavar="VOLUME…")],
) -> Answer:
    """Delete volumes and all that is on them. One that is attached is refused.

    Examples:

        sandboxer volume delete data
    """
    return each(_show(platform.volumes.remove(one)) for one in volumes)


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
