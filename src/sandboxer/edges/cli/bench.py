"""`bench` measures this host: it runs the bench of the source checkout, in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from sandboxer.edges.cli.exits import CommandFailed

CHECKOUT = Path(__file__).resolve().parents[4]
app = typer.Typer(rich_markup_mode="rich")


@app.command("bench")
def bench(
    rounds: Annotated[int, typer.Option(help="Rounds of each figure.")] = 50,
    quick: Annotated[bool, typer.Option("--quick", help="Few rounds: to see that it works.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="Only this scenario; can be repeated.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="REV", help="Compare with this revision, both platforms side by side."),
    ] = None,
    transfers: Annotated[
        int | None, typer.Option(help="Length of the ledger's long history; a million unless given.")
    ] = None,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Write plots (PNG) there.")] = None,
    doc: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Replace the figures of this document.")
    ] = None,
    image: Annotated[Path | None, typer.Option(metavar="DIR", help="Root tree of the base image.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON; the table goes to stderr.")] = False,
) -> None:
    """Measure this host against bwrap, podman and a bare web server. Needs root and the base image.

    Starts its own platform in a temporary folder and removes everything afterwards. Exit code 1 when a bar is
    not reached.

    Examples:

        sandboxer bench --quick

        sandboxer bench --only cold --only signed --only ledger

        sandboxer bench --against HEAD~1

        sandboxer bench --json --rounds 50 --plot bench/results > figures.json
    """
    if not (CHECKOUT / "bench" / "__main__.py").is_file():
        raise CommandFailed(
            "The bench is part of the source checkout, which is not here.",
            next_step="Run it from a clone: make bench.",
        )
    words = [sys.executable, "-m", "bench", "--rounds", str(rounds)]
    words += ["--quick"] if quick else []
    words += [word for name in only or [] for word in ("--only", name)]
    words += ["--against", against] if against is not None else []
    words += ["--transfers", str(transfers)] if transfers is not None else []
    words += ["--plot", str(plot.resolve())] if plot else []
    words += ["--doc", str(doc.resolve())] if doc else []
    words += ["--image", str(image.resolve())] if image else []
    words += ["--json"] if json else []
    raise typer.Exit(subprocess.run(words, cwd=CHECKOUT, check=False).returncode)
