"""Ways to make sandboxes: `backend list` says which there are, `backend check` runs the contract suite
against one (and leaves nothing behind), `backend new` begins another.
"""

from __future__ import annotations

import asyncio
import shutil
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
from sandboxer.backends.registry import Extensions, deviations_of, experimental_reason, find_opener, known
from sandboxer.backends.scaffold import new_package
from sandboxer.edges.cli.exits import CommandFailed, Exit
from sandboxer.edges.cli.options import Json
from sandboxer.edges.cli.output import columns, err, out, print_json
from sandboxer.kernel.errors import NotAvailable
from sandboxer.kernel.values import new_id
from sandboxer.settings import Settings, load_settings
from sandboxer.wiring import namespaces_settings
from sandboxer.wiring.extensions import load_extensions

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
backends = typer.Typer(
    help="Ways to make sandboxes: list, check and write them.", no_args_is_help=True, rich_markup_mode="rich"
)
groups = {"backend": backends}


@backends.callback()
def group() -> None:
    """Ways to make sandboxes: list, check and write them."""


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
    files = load_extensions(settings.extensions_dir)
    deviations = {**deviations_of(name, files), **dict.fromkeys(deviation or [], "named on the command line")}
    results = asyncio.run(_run(name, settings, deviations, image, is_json=json))
    is_fine = all(result.is_fine for result in results)
    if json:
        print_json({"backend": name, "fine": is_fine, "checks": [asdict(result) for result in results]})
    else:
        _show(name, results, is_fine=is_fine)
    raise typer.Exit(Exit.OK if is_fine else Exit.ERROR)


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
    opener = find_opener(name, load_extensions(settings.extensions_dir))
    async with opener(given) as backend:
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


@backends.command("list")
def list_(json: Json = False) -> None:
    """List the backends that this host can open: those shipped, of packages, and of SANDBOXER_EXTENSIONS_DIR.

    Examples:

        sandboxer backend list
    """
    settings = load_settings()
    found = [
        {
            "id": name,
            "source": one.source,
            "used": name in settings.backends,
            "trouble": (trouble := _trouble(name, files)),
            "experimental": None if trouble else experimental_reason(name, files),
        }
        for files in (load_extensions(settings.extensions_dir),)
        for name, one in sorted(known(files).items())
    ]
    if json:
        print_json({"items": found, "next": None})
        return
    rows = [(one["id"], "used" if one["used"] else "", one["source"]) for one in found]
    out.print(columns(rows, "BACKEND", "", "FROM"))
    for one in found:
        if one["experimental"] is not None:
            out.print(Text.assemble(("\nexperimental: ", "yellow"), f"{one['id']}, {one['experimental']}"))
    for one in found:
        if one["trouble"] is not None:
            out.print(Text.assemble(("\nnot usable: ", "bold red"), str(one["trouble"])))


def _trouble(name: str, files: Extensions) -> str | None:
    try:
        find_opener(name, files)
    except NotAvailable as error:
        return f"{error}. {error.facts.get('hint', error.what_next())}"
    return None


@backends.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Of the backend, as in ext.rack, or rack alone.")],
    to: Annotated[
        Path | None, typer.Option("--to", metavar="FOLDER", help="Where; sandboxer-NAME here unless given.")
    ] = None,
    json: Json = False,
) -> None:
    """Begin a package with a backend of your own, which works already.

    Examples:

        sandboxer backend new rack

        sandboxer backend new rack --to ~/src/sandboxer-rack
    """
    files = new_package(name)
    word = name.removeprefix("ext.")
    folder = to or Path(f"sandboxer-{word}")
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise CommandFailed(f"{folder} is no empty folder.", next_step="Name another with --to.")
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
        if not json:
            out.print(f"[green]made[/] {folder / path}")
    if json:
        print_json({"id": f"ext.{word}", "folder": str(folder), "files": [str(path) for path in files]})
        return
    out.print(f"\nNext: pip install -e {folder} && sandboxer backend check ext.{word}")
