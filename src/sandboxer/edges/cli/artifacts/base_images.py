"""`image build|built`: base images on this host, without a server; `image gc`: what nobody needs of them. All
other verbs are of published ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, out, plain, print_json, size
from sandboxer.kernel.late import late
from sandboxer.wire.platform import Collected, Garbage, GarbageItem

if TYPE_CHECKING:
    from sandboxer.artifacts.images import Image
    from sandboxer.edges.cli import builds
else:
    builds = late("sandboxer.edges.cli.builds")

app = typer.Typer(
    help="Build base images; publish, share and start from others.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Where = Annotated[
    Path | None, typer.Option("--state-dir", metavar="DIR", help="State folder; images are in DIR/images.")
]


@app.command("build")
def build(
    name: Annotated[str, typer.Argument(help="Name of a recipe in images/.")] = "base",
    rebuild: Annotated[bool, typer.Option("--rebuild", help="Also when it is there already.")] = False,
    state_dir: Where = None,
    json: Json = False,
) -> None:
    """Build a base image from its recipe (needs root).

    Examples:

        sandboxer image build

        sandboxer image build base --rebuild --state-dir /var/lib/sandboxer
    """
    image = builds.build_shown(name, builds.images_dir(state_dir), rebuild=rebuild)
    if json:
        print_json(_as_json(image))
    else:
        out.print(f"[green]image {image.name}[/] ({size(image.size_bytes)}) is at {image.folder}")


@app.command("built")
def built(state_dir: Where = None, json: Json = False) -> None:
    """List base images that were built on this host, without asking a server.

    Examples:

        sandboxer image built --json
    """
    images = builds.built_images(state_dir)
    if json:
        print_json([_as_json(image) for image in images])
        return
    rows = [
        (image.name, f"{image.distribution} {image.suite}", size(image.size_bytes), ago(image.built_at))
        for image in images
    ]
    out.print(columns(rows, "NAME", "SYSTEM", "SIZE", "BUILT"))
    if not rows:
        out.print("[dim]none; make one with[/] sandboxer image build")


@app.command("gc")
def collect(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what nobody needs.")] = False,
    now: Annotated[bool, typer.Option("--now", help="Also what is still in its time of grace.")] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Remove what nobody needs: older builds that no disk lies over, disks without a record.

    The platform does this by itself, an hour or less after the time of grace. What a name means, and what
    any sandbox, snapshot or image lies over, always stays.

    Examples:

        sandboxer image gc --dry-run

        sandboxer image gc --now --json
    """
    with client(url, state_dir, timeout_s=900.0) as platform:
        if dry_run:
            found: Garbage | Collected = platform.host.garbage()
        else:
            found = platform.host.collect_garbage(now=now)
    if json:
        print_json(found)
        return
    items = found.garbage if isinstance(found, Garbage) else found.removed
    rows = [
        (
            plain(one.id),
            one.tier,
            "-" if one.size_bytes is None else size(one.size_bytes),
            ago(one.since),
            _goes(one) if dry_run else "removed",
        )
        for one in items
    ]
    if rows:
        out.print(columns(rows, "ID", "TIER", "SIZE", "UNNEEDED SINCE", "GOES"))
    word = "nobody needs these" if dry_run else "removed"
    out.print(f"[dim]{len(rows)} {word}; {size(sum(one.size_bytes or 0 for one in items))}[/]")


def _goes(one: GarbageItem) -> str:
    if one.goes_at is None:
        return "never: shared with other servers"
    return one.goes_at.astimezone().strftime("%Y-%m-%d %H:%M")


def _as_json(image: Image) -> dict[str, object]:
    """Without the package list, which is long and in the image's own record."""
    return {
        "name": image.name,
        "digest": image.digest,
        "size_bytes": image.size_bytes,
        "built_at": image.built_at.isoformat(),
        "distribution": image.distribution,
        "suite": image.suite,
        "architecture": image.architecture,
        "packages": len(image.packages),
        "folder": str(image.folder),
    }
