"""`make test-languages`: the five programs of every language and shell, in real sandboxes.

Writes what was seen to docs/reference/languages.json and the page beside it; with names, tries only those
and writes nothing. Ends with 1 if anything went wrong.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.work.languages import PROGRAMS, Language, find_language, languages
from tests.languages.proving import Proved, prove_all
from tests.languages.seen import write_seen
from tests.support.platforms import real_platform, why_not_real

POOL_MB = 6144


def main(names: Sequence[str]) -> int:
    console = Console()
    if why := why_not_real():
        console.print(f"[red]{why}[/red]")
        return 1
    wanted = [find_language(name) for name in names] or [*languages().values()]
    with tempfile.TemporaryDirectory(prefix="languages-", dir="/var/tmp") as folder:
        proved = _prove(Path(folder) / "state", wanted, console)
    console.print(_table(proved))
    for one in proved:
        for program, why in one.wrong.items():
            console.print(f"[red]{one.language.name} {program}[/red]: {why}", highlight=False, markup=True)
    good = sum(one.is_good for one in proved if not one.language.is_shell)
    shells = sum(one.is_good for one in proved if one.language.is_shell)
    console.print(f"{good} languages and {shells} shells passed, of {len(proved)} tried")
    if not names:
        write_seen(proved)
    return 0 if all(one.is_good for one in proved) else 1


def _prove(state_dir: Path, wanted: Sequence[Language], console: Console) -> list[Proved]:
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    proved: list[Proved] = []
    with (
        real_platform(state_dir, pool_mb=POOL_MB) as up,
        Sandboxer(owner_file=up.owner_file, url=up.url, timeout_s=600) as client,
        Progress(*columns, console=console) as progress,
    ):
        task = progress.add_task("languages", total=len(wanted))
        for one in prove_all(client, wanted):
            proved.append(one)
            progress.update(task, advance=1, description=one.language.name)
            mark = "[green]✓[/green]" if one.is_good else f"[red]✗ {', '.join(one.wrong)}[/red]"
            progress.console.print(f"{mark} {one.language.title} [dim]{one.seconds:.1f} s[/dim]")
    order = [language.name for language in wanted]
    return sorted(proved, key=lambda one: order.index(one.language.name))


def _table(proved: Sequence[Proved]) -> Table:
    table = Table("language", "version", *PROGRAMS, "seconds")
    for one in proved:
        marks = ["[red]✗[/red]" if program in one.wrong else "[green]✓[/green]" for program in PROGRAMS]
        table.add_row(one.language.name, one.version[:60], *marks, f"{one.seconds:.1f}")
    return table


def _leave(*_: object) -> None:
    """Ended from outside: sandboxes, pool and server must not stay behind."""
    sys.exit(1)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _leave)
    sys.exit(main(sys.argv[1:]))
