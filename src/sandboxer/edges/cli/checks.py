"""What this host's sandboxes promise and how fast they are: `backend check` and `bench`.

`backend check`: the contract suite against a backend, on this host. Leaves nothing behind.

`bench`: runs the bench of the source checkout, in a process of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from sandboxer.backends.checks import CHECKS, CheckResult, Verdict, iterate_checks
from sandboxer.backends.contract import Backend, Order, Resources, Trust
from sandboxer.backends.namespaces import NamespacesBackend
from sandboxer.backends.registry import SHIPPED, find_opener
from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import columns, err, out, print_json
from sandboxer.kernel.values import new_id
from sandboxer.settings import Settings, load_settings
from sandboxer.wiring import namespaces_settings

POOL_MB = 2048
# Far from a platform's own ranges: the check may run beside one.
FIRST_UID = 1_900_000_000
STYLES = {
    Verdict.PASSED: "green",
    Verdict.FAILED: "bold red",
    Verdict.NO_LONGER_DEVIATES: "bold red",
    Verdict.DEVIATES: "yellow",
    Verdict.NOT_OFFERED: "dim",
}
CHECKOUT = Path(__file__).resolve().parents[4]
backends = typer.Typer(
    help="Check a backend against the contract.", no_args_is_help=True, rich_markup_mode="rich"
)
groups = {"backend": backends}
app = typer.Typer(rich_markup_mode="rich")


@backends.callback()
def group() -> None:
    """Check a backend against the contract."""


@backends.command("check")
def check(
    name: Annotated[
        str, typer.Argument(help="Name of the backend, as in ext.namespaces.")
    ] = "ext.namespaces",
    deviation: Annotated[
        list[str] | None, typer.Option("--deviation", help="Check that is known to fail; can be repeated.")
    ] = None,
    image: Annotated[str, typer.Option(help="Image to make sandboxes of.")] = "base",
    state_dir: Annotated[
        Path | None,
        typer.Option("--state-dir", metavar="DIR", help="Where images are; nothing else is touched."),
    ] = None,
    json: Json = False,
) -> None:
    """Run every check of the backend contract with real sandboxes of its own; exit code 1 if one fails.

    Examples:

        sandboxer backend check ext.namespaces

        sandboxer backend check ext.namespaces --json
    """
    settings = load_settings(state_dir=state_dir)
    known = {**_declared(name), **dict.fromkeys(deviation or [], "named on the command line")}
    results = asyncio.run(_run(name, settings, known, image, is_json=json))
    is_fine = all(result.is_fine for result in results)
    if json:
        print_json({"backend": name, "fine": is_fine, "checks": [asdict(result) for result in results]})
    else:
        _show(name, results, is_fine=is_fine)
    raise typer.Exit(Exit.OK if is_fine else Exit.ERROR)


def _declared(name: str) -> dict[str, str]:
    """What a shipped backend says of itself that it does not do, and why."""
    package = SHIPPED.get(name, "").partition(":")[0]
    found: dict[str, str] = getattr(importlib.import_module(package), "DEVIATIONS", {}) if package else {}
    return dict(found)


async def _run(
    name: str, settings: Settings, deviations: dict[str, str], image: str, *, is_json: bool
) -> list[CheckResult]:
    def make_order() -> Order:
        resources = Resources(vcpus=1, memory_mb=256, disk_mb=128, pids=128)
        return Order(sandbox_id=new_id("sbx"), image=image, resources=resources, trust=Trust.ZERO)

    results: list[CheckResult] = []
    with _scratch() as folder, err.status("checking") as status:
        async with _opened(name, settings, folder) as backend:
            async for result in iterate_checks(backend, make_order, deviations):
                results.append(result)
                status.update(f"checking {name}: {len(results)} of {len(CHECKS)}")
                if not is_json and not result.is_fine:
                    err.print(f"[bold red]{result.name}[/]: {result.detail}")
    return results


@contextmanager
def _scratch() -> Iterator[Path]:
    # Not /tmp, which may be memory: a storage pool will lie in it.
    folder = Path(tempfile.mkdtemp(prefix="sandboxer-check-", dir="/var/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def _opened(name: str, settings: Settings, folder: Path) -> AsyncIterator[Backend]:
    """The backend on a state folder of its own, so that a running platform is not disturbed."""
    own = settings.model_copy(
        update={"state_dir": folder, "images_dir_given": settings.images_dir, "pool_size_mb": POOL_MB}
    )
    given = replace(namespaces_settings(own), uid_base=FIRST_UID) if name == "ext.namespaces" else own
    async with find_opener(name)(given) as backend:
        yield backend
        for sandbox_id in await backend.inventory():
            await backend.teardown(sandbox_id)
    if isinstance(backend, NamespacesBackend):
        # What outlives a backend by design.
        backend.dependencies.cgroups.remove_parents()
        backend.dependencies.pool.unmount()


def _show(name: str, results: list[CheckResult], *, is_fine: bool) -> None:
    rows = [
        (
            Text(result.verdict, style=STYLES[result.verdict]),
            result.name,
            f"{result.seconds:.1f} s",
            result.why,
        )
        for result in results
    ]
    out.print(columns(rows, "", "CHECK", "TOOK", "WHY IT MATTERS"))
    word = "[bold green]keeps the contract[/]" if is_fine else "[bold red]does not keep the contract[/]"
    out.print(f"\n{name} {word} on this host.")


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
