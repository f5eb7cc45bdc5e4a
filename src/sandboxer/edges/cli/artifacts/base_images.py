"""`image build|save|load`: base images on this host, without a server; `image gc`: what nobody needs of them.
All other verbs are of published ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.options import Json, StateDir, Url, client
from sandboxer.edges.cli.output import ago, columns, err, out, plain, print_json, size
from sandboxer.edges.cli.verbs import Answer, group, show_answer
from sandboxer.kernel.program import late
from sandboxer.wire.platform import Collected, Garbage, GarbageItem

if TYPE_CHECKING:
    from sandboxer.artifacts import images
    from sandboxer.artifacts.images import Image
    from sandboxer.edges.cli import builds
else:
    builds, images = late("sandboxer.edges.cli.builds"), late("sandboxer.artifacts.images")

app = group("Build base images; publish, share and start from others.")

Where = Annotated[
    Path | None, typer.Option("--state-dir", metavar="DIR", help="State folder; images are in DIR/images.")
]


@app.command("build")
def build(
    what: Annotated[
        str, typer.Argument(help="A folder with a Dockerfile; or the name of a recipe in images/.")
    ] = "base",
    file: Annotated[
        Path | None, typer.Option("--file", "-f", help="The Dockerfile, if not Dockerfile in the folder.")
    ] = None,
    name: Annotated[
        str | None, typer.Option("--name", "-t", help="A name for people; else the folder's.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="The stage to build.")] = None,
    build_arg: Annotated[
        list[str] | None, typer.Option("--build-arg", help="NAME=VALUE for an ARG; repeatable.")
    ] = None,
    start: Annotated[
        str | None, typer.Option(help="What to start in a sandbox of it; kept as a label.")
    ] = None,
    ready: Annotated[
        str | None, typer.Option(help="What succeeds once that has started; kept as a label.")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Make every layer anew.")] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="A recipe: also when it is there already.")
    ] = False,
    json: Json = False,
    url: Url = None,
    state_dir: StateDir = None,
) -> None:
    """Build an image from a Dockerfile, in a sandbox of the platform; or a base image of this host from its
    recipe (needs root).

    `FROM sandboxer/base` and `FROM sandboxer/img_…` begin as images of the platform.

    Examples:

        sandboxer image build .

        sandboxer image build . -f deploy/Dockerfile --name api --start ./serve

        sandboxer image build base --rebuild --state-dir /var/lib/sandboxer
    """
    if file is not None or "/" in what or what in (".", ".."):
        folder = Path(what)
        with client(url, state_dir, timeout_s=MADE_WITHIN_S) as platform:
            made = platform.images.build(
                folder,
                name or folder.resolve().name,
                progress=say,
                file=_within(file, folder),
                target=target,
                arg=build_arg,
                start=start,
                ready=ready,
                cache=not no_cache,
            )
        show_answer(
            Answer(made, f"[green]{plain(made.id)}[/]", made.name, size(made.size_bytes)), is_json=json
        )
        return
    _build_recipe(what, state_dir, rebuild=rebuild, json=json)


# A build may take as long as an import and everything that is built before.
MADE_WITHIN_S = 5400.0


def say(line: str) -> None:
    """Shows what a builder says, beside the answer."""
    err.print(plain(line), highlight=False)


def _within(file: Path | None, folder: Path) -> str | None:
    if not folder.is_dir():
        raise CommandFailed(
            f"{folder} is no folder.", next_step="Name the folder that the Dockerfile copies from."
        )
    if file is None:
        return None
    try:
        return str(file.resolve().relative_to(folder.resolve()))
    except ValueError:
        raise CommandFailed(
            f"{file} is not in {folder}.", next_step="Move it there: only the folder is sent."
        ) from None


def _build_recipe(name: str, state_dir: Path | None, *, rebuild: bool, json: bool) -> None:
    image = builds.build_shown(name, builds.images_dir(state_dir), rebuild=rebuild)
    _show_image(image, is_json=json)


def _show_image(image: Image, *, is_json: bool) -> None:
    said = f"[green]image {image.name}[/] ({size(image.size_bytes)}) is at {image.folder}"
    show_answer(Answer(_as_json(image), said), is_json=is_json)


@app.command("save")
def save(
    name: Annotated[str, typer.Argument(help="Name of a base image of this host.")],
    file: Annotated[Path, typer.Argument(help="Where to: .tar, .tar.gz or .tar.zst.")],
    state_dir: Where = None,
    json: Json = False,
) -> None:
    """Write a base image of this host into a file, for other machines.

    Examples:

        sandboxer image save base base.tar.zst
    """
    image = images.save_image(name, builds.images_dir(state_dir), file)
    said = f"[green]image {image.name}[/] is in {file} ({size(file.stat().st_size)})"
    show_answer(Answer(_as_json(image) | {"file": str(file)}, said), is_json=json)


@app.command("load")
def load(
    file: Annotated[Path, typer.Argument(help="What `image save` wrote, here or elsewhere.")],
    state_dir: Where = None,
    json: Json = False,
) -> None:
    """Take a base image from a file instead of building it (needs root).

    Examples:

        sandboxer image load base.tar.zst
    """
    _show_image(images.load_image_file(file, builds.images_dir(state_dir)), is_json=json)


def list_built(state_dir: Path | None) -> Answer:
    """Base images that were built on this host, without asking a server."""
    found = builds.built_images(state_dir)
    rows = [
        (image.name, f"{image.distribution} {image.suite}", size(image.size_bytes), ago(image.built_at))
        for image in found
    ]
    shown = columns(rows, "NAME", "SYSTEM", "SIZE", "BUILT")
    return Answer([_as_json(image) for image in found], shown, make="image build")


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
    word = "to remove" if dry_run else "removed"
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
