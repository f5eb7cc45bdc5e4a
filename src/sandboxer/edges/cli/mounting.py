"""`--volume NAME:/PATH[:ro]`, for every verb that makes a sandbox."""

from __future__ import annotations

from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed

VolumeOption = Annotated[
    list[str] | None,
    typer.Option("--volume", help="NAME:/PATH or NAME:/PATH:ro; can be repeated.", metavar="NAME:/PATH"),
]


def mounts(words: list[str] | None) -> list[dict[str, str]]:
    """`data:/data`, `models:/models:ro` as given by a repeatable option."""
    found = []
    for word in words or []:
        name, _, rest = word.partition(":")
        path, _, mode = rest.partition(":")
        mode = mode or "rw"
        if not name or not path.startswith("/") or mode not in ("rw", "ro"):
            raise CommandFailed(
                f"--volume {word!r} is not NAME:/PATH or NAME:/PATH:ro",
                next_step="Write --volume data:/data, or data:/data:ro to only read it.",
            )
        found.append({"volume": name, "path": path, "mode": mode})
    return found
