"""`sandboxer image publish|show|spawn|…`: disks with a name and a digest, shared and started from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from sandboxer.edges.cli.artifacts.base_images import app
from sandboxer.edges.cli.cp import progress
from sandboxer.edges.cli.options import (
    VolumeOption,
    mounts,
)
from sandboxer.edges.cli.output import ago, columns, facts_table, plain, size
from sandboxer.edges.cli.verbs import Answer, each, verb
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.catalogue import Image
from sandboxer.wire.images import PublishedImage

Id = Annotated[str, typer.Argument(help="Id of the image (img_…).", metavar="ID")]
Account = Annotated[str, typer.Argument(help="Id of the account.")]
Visibility = Annotated[str, typer.Option(help="private, unlisted or public.")]
Clean = Annotated[bool, typer.Option("--clean", help="Leave out files that look like secrets.")]
_SLOW_S = 900.0
groups = {"image": app}


@verb(app, "publish", wait="reading every file", timeout_s=_SLOW_S)
def publish(
    platform: Sandboxer,
    source: Annotated[
        str, typer.Argument(help="A snapshot (snp_…), a sandbox (sbx_…), or a service by id or name.")
    ],
    name: Annotated[str, typer.Option(help="A name for people.")],
    description: Annotated[str, typer.Option(help="What it is for.")] = "",
    visibility: Visibility = "private",
    clean: Clean = False,
) -> object:
    """Publish a snapshot, or a sandbox's or a service's disk as it is now.

    Examples:

        sandboxer image publish snp_0123456789abcdefghjkmnpqrs --name tool

        sandboxer image publish sbx_0123456789abcdefghjkmnpqrs --name tool --visibility public --clean
    """
    kinds = {"snp_": "snapshot", "sbx_": "sandbox"}
    given = {kinds.get(source[:4], "service"): source}
    return _show(
        platform.images.publish(name, description=description, visibility=visibility, clean=clean, **given)
    )


@verb(app, "list")
def list_all(
    platform: Sandboxer,
    filter: Annotated[str, typer.Option(help="all, owned, shared, public, or base: the host's own.")] = "all",
) -> Answer:
    """List images that a sandbox may start from: the host's own by name, published ones by id, newest first.

    Examples:

        sandboxer image list

        sandboxer image list --filter owned --json
    """
    base = platform.images.base() if filter in ("all", "base") else []
    found = [] if filter == "base" else list(platform.images.list(which=filter))
    rows: list[tuple[str | Text, ...]]
    rows = [(one.name, "", "the host", "everyone", "", _size(one), "", ago(one.built_at), "") for one in base]
    rows += [
        (
            one.id,
            one.name,
            one.account,
            one.visibility,
            _state(one),
            size(one.size_bytes),
            one.digest[7:19],
            ago(one.created_at),
            "locked" if one.locked_at else "",
        )
        for one in found
    ]
    shown = columns(rows, "IMAGE", "NAME", "OF", "SEEN BY", "STATE", "SIZE", "DIGEST", "MADE", "")
    hint = [] if rows else ["[dim]none; publish one with[/] sandboxer image publish"]
    return Answer({"base": base, "published": found}, shown, *hint)


@verb(app, "show")
def show(platform: Sandboxer, id: Id) -> object:
    """Show one published image.

    Examples:

        sandboxer image show img_0123456789abcdefghjkmnpqrs
    """
    return _show(platform.images.get(id))


@verb(app, "change")
def change(
    platform: Sandboxer,
    id: Id,
    name: Annotated[str | None, typer.Option(help="Another name.")] = None,
    description: Annotated[str | None, typer.Option(help="Another description.")] = None,
    visibility: Annotated[str | None, typer.Option(help="private, unlisted or public.")] = None,
) -> object:
    """Name it, describe it, or say who may see it.

    Examples:

        sandboxer image change img_0123456789abcdefghjkmnpqrs --visibility public
    """
    return _show(platform.images.change(id, name=name, description=description, visibility=visibility))


@verb(app, "spawn", wait="making sandboxes", timeout_s=_SLOW_S)
def spawn(
    platform: Sandboxer,
    id: Id,
    count: Annotated[int, typer.Option(help="How many, up to 100.")] = 1,
    name: Annotated[str | None, typer.Option(help="A name for people.")] = None,
    ttl: Annotated[str | None, typer.Option(help="How long each lives: 30m, 4h.")] = None,
    volume: VolumeOption = None,
) -> Answer:
    """Make sandboxes that begin as the image, each a new machine.

    Examples:

        sandboxer image spawn img_0123456789abcdefghjkmnpqrs --count 3
    """
    made = platform.images.spawn(id, count=count, name=name, ttl=ttl, volumes=mounts(volume) or None)
    shown = each(Answer(one, plain(one.id), plain(one.state)) for one in made.sandboxes)
    failed = [
        Text.assemble((f"{one.number} ", "red"), plain(one.problem.detail or one.problem.title))
        for one in made.failed
    ]
    return Answer(made, *shown.parts, sep="\n", note=Group(*failed) if failed else None)


@verb(app, "clone", wait="reading every file", timeout_s=_SLOW_S)
def clone(
    platform: Sandboxer, id: Id, name: Annotated[str | None, typer.Option(help="Another name.")] = None
) -> object:
    """Copy an image into your own account.

    Examples:

        sandboxer image clone img_0123456789abcdefghjkmnpqrs --name mine
    """
    return _show(platform.images.clone(id, name=name))


@verb(app, "verify", wait="reading every file", timeout_s=_SLOW_S)
def verify(platform: Sandboxer, id: Id) -> Answer:
    """Read every file of an image and compare its digest.

    Examples:

        sandboxer image verify img_0123456789abcdefghjkmnpqrs
    """
    found = platform.images.verify(id)
    return Answer(found, plain(found.id), "[green]is what was published[/]", plain(found.digest))


@verb(app, "grants")
def grants(platform: Sandboxer, id: Id) -> object:
    """Show which accounts may use a private image.

    Examples:

        sandboxer image grants img_0123456789abcdefghjkmnpqrs
    """
    return _show_users(platform.images.grants(id))


@verb(app, "grant")
def grant(platform: Sandboxer, id: Id, account: Account) -> object:
    """Let an account use an image.

    Examples:

        sandboxer image grant img_0123456789abcdefghjkmnpqrs bob
    """
    return _show_users(platform.images.grant(id, account))


@verb(app, "revoke")
def revoke(platform: Sandboxer, id: Id, account: Account) -> object:
    """Take that back; what was made from it stays.

    Examples:

        sandboxer image revoke img_0123456789abcdefghjkmnpqrs bob
    """
    return _show_users(platform.images.revoke(id, account))


def _show_users(accounts: Sequence[str]) -> Answer:
    return Answer({"granted_to": list(accounts)}, "used by", plain(", ".join(accounts) or "nobody else"))


@verb(app, "transfer")
def transfer(platform: Sandboxer, id: Id, account: Account) -> object:
    """Offer an image to another account, which accepts it (`image accept`) and pays for it from then on.

    Examples:

        sandboxer image transfer img_0123456789abcdefghjkmnpqrs bob
    """
    return _show(platform.images.transfer(id, account))


@verb(app, "accept")
def accept(platform: Sandboxer, id: Id) -> object:
    """Accept an image that was offered to you.

    Examples:

        sandboxer image accept img_0123456789abcdefghjkmnpqrs
    """
    return _show(platform.images.accept(id))


@verb(app, "export", timeout_s=_SLOW_S)
def export(
    platform: Sandboxer,
    id: Id,
    to: Annotated[Path, typer.Argument(help="File to write.", metavar="FILE")],
    format: Annotated[str, typer.Option(help="oci, or docker (`docker load`, `podman load`).")] = "oci",
) -> Answer:
    """Write an image to a file that Docker and Podman load.

    Examples:

        sandboxer image export img_0123456789abcdefghjkmnpqrs tool.tar --format docker
    """
    form: Any = format
    with progress(f"export {to.name}", None) as count:
        written = platform.images.export(id, to, form=form, progress=count)
    return Answer({"file": str(to), "bytes": written}, plain(str(to)), size(written))


@verb(app, "import", timeout_s=_SLOW_S)
def receive(
    platform: Sandboxer,
    archive: Annotated[
        Path, typer.Argument(help="What `docker save` or `podman save` wrote.", metavar="FILE")
    ],
    name: Annotated[str, typer.Option(help="A name for people.")],
    visibility: Visibility = "private",
    clean: Clean = False,
) -> Answer:
    """Publish an image from a file: an OCI layout or a Docker archive.

    Examples:

        sandboxer image import tool.tar --name tool
    """
    with progress("import", archive.stat().st_size) as count:
        made = platform.images.import_archive(
            archive, name, visibility=visibility, clean=clean, progress=count
        )
    return _show(made)


@verb(app, "lock")
def lock(platform: Sandboxer, id: Id) -> object:
    """Guard an image by a second proof.

    Examples:

        sandboxer image lock img_0123456789abcdefghjkmnpqrs
    """
    return _show(platform.images.lock(id))


@verb(app, "unlock", may_need_proof=True)
def unlock(platform: Sandboxer, id: Id) -> object:
    """Take that guard away, with a second proof.

    Examples:

        sandboxer image unlock img_0123456789abcdefghjkmnpqrs
    """
    return _show(platform.images.unlock(id))


@verb(app, "remove", may_need_proof=True)
def remove(platform: Sandboxer, id: Id) -> object:
    """Remove a published image; what was made from it stays.

    Examples:

        sandboxer image remove img_0123456789abcdefghjkmnpqrs
    """
    return _show(platform.images.remove(id))


def _show(one: PublishedImage) -> Answer:
    facts = [
        ("image", plain(one.id)),
        ("name", one.name),
        ("of", one.account),
        ("state", _state(one)),
        ("seen by", one.visibility),
        ("digest", one.digest),
        ("size", f"{size(one.size_bytes)} in {_counted(one.files, 'file')}, over {one.base or 'nothing'}"),
        ("source", one.source),
        ("offered to", one.offered_to or ""),
        ("left out", _counted(one.stripped_count, "file") if one.stripped_count else ""),
        ("checked", ago(one.verified_at)),
        ("locked", ago(one.locked_at)),
    ]
    shown = facts_table([(name, value) for name, value in facts if value])
    return Answer(one, shown, note=_findings(one) if one.findings_count else None)


def _findings(one: PublishedImage) -> Group:
    lines = [Text.assemble("   ", plain(found.path), " ", plain(found.kind)) for found in one.findings[:20]]
    return Group(f"[yellow]What looks like a secret in it ({one.findings_count}):[/]", *lines)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _size(one: Image) -> str:
    return "" if one.size_bytes is None else size(one.size_bytes)


def _state(one: PublishedImage) -> Text:
    return Text(one.state, style={"kept": "green", "unpaid": "yellow"}.get(one.state, "dim"))
