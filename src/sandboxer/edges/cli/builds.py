"""Building an image on this host, shown as it goes; and the offer to build the one that a program needs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.edges.cli.output import err
from sandboxer.kernel.errors import InvalidRequest
from sandboxer.kernel.program import late
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.catalogue import Language
from sandboxer.work.execute.submission import language_of

# Seldom is anything built, and most programs only ask which language they are in.
if TYPE_CHECKING:
    from sandboxer import settings
    from sandboxer.artifacts import images
else:
    settings, images = late("sandboxer.settings"), late("sandboxer.artifacts.images")


LOOPBACK = ("127.0.0.1", "::1", "localhost")


def images_dir(state_dir: Path | None) -> Path:
    return settings.load_settings(state_dir=state_dir).images_dir


def built_images(state_dir: Path | None) -> list[images.Image]:
    return list(images.list_images(images_dir(state_dir)))


def build_shown(name: str, folder: Path, *, rebuild: bool = False) -> images.Image:
    """Shows a bar on a terminal, and a line for each phase elsewhere."""
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

        def show(step: images.Progress) -> None:
            nonlocal last
            bar.update(task, completed=step.fraction, description=f"image {name}: {step.phase}")
            if not err.is_terminal and step.phase != last:
                last = step.phase
                err.print(f"image {name}: {step.phase}")

        return images.build_image(name, folder, show, rebuild=rebuild)


def ensure_language(
    platform: Sandboxer, word: str | None, code: str, *, may_build: bool, state_dir: Path | None
) -> None:
    """Returns when the platform has the language, or has been given the image; raises with what to do else.

    What is in every image is not asked for: most programs need no second look.
    """
    try:
        language = language_of(code, word)
    except InvalidRequest:
        return  # the platform knows better which words it understands
    if language.in_base:
        return
    wanted = platform.languages.get(language.name)
    if wanted.available:
        return
    here = settings.load_settings(state_dir=state_dir)
    command = f"sudo sandboxer image build {wanted.image} --state-dir {here.state_dir}"
    why_not = _why_not_here(platform, here.images_dir)
    if why_not is not None or not (may_build or _agrees(wanted)):
        hint = "" if why_not else ", or add --build"
        where = "" if why_not is None else f" on the platform's host ({why_not})"
        raise CommandFailed(
            f"No image of this platform has {wanted.title}; the image {wanted.image} would.",
            next_step=f"Build it{where}: {command}{hint}",
        )
    build_shown(wanted.image, here.images_dir)


def _agrees(wanted: Language) -> bool:
    if not (sys.stdin.isatty() and err.is_terminal):
        return False
    return typer.confirm(
        f"{wanted.title} needs the image {wanted.image}, which is not built. Build it now (a minute or two)?",
        default=True,
        err=True,
    )


def _why_not_here(platform: Sandboxer, folder: Path) -> str | None:
    """Says why an image that this command builds would not be the platform's; None if it would."""
    if urlsplit(platform.credentials.url).hostname not in LOOPBACK:
        return "it is another host"
    known = {image.name for image in images.list_images(folder)}
    if not known.issuperset(platform.languages.get("python").images):
        return f"its images are not in {folder}"
    return "building needs root" if os.geteuid() != 0 else None
