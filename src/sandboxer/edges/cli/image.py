"""`image build|list`: base images on this host, without a server. All other verbs are of published ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sandboxer.artifacts.images import Image, build_image, list_images
from sandboxer.artifacts.images import Progress as Step
from sandboxer.edges.cli.artifacts import images as published
from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import ago, columns, err, out, print_json, size
from sandboxer.settings import load_settings

app = typer.Typer(
    help="Build base images; publish, share and start from others.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)
groups = {"image": app}

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
    images_dir = load_settings(state_dir=state_dir).images_dir
    bar = Progress(
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=err,
        disable=not err.is_terminal,
    )
    with bar:
        task = bar.add_task(f"image {name}", total=1.0)
        last = ""

        def show(step: Step) -> None:
            nonlocal last
            bar.update(task, completed=step.fraction, description=f"image {name}: {step.phase}")
            if not err.is_terminal and step.phase != last:
                last = step.phase
                err.print(f"image {name}: {step.phase}")

        image = build_image(name, images_dir, show, rebuild=rebuild)
    if json:
        print_json(_as_json(image))
    else:
        out.print(f"[green]image {image.name}[/] ({size(image.size_bytes)}) is at {image.folder}")


@app.command("list")
def list_all(state_dir: Where = None, json: Json = False) -> None:
    """List base images on this host.

    Examples:

        sandboxer image list --json
    """
    images = list_images(load_settings(state_dir=state_dir).images_dir)
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


for verb, act in published.VERBS.items():
    app.command(verb)(act)


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
