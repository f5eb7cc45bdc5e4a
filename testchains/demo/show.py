"""The demo in a terminal: spinners while something is awaited, one line for each step, a table at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from testchains.demo.story import Step, Story

NAME_WIDTH = 9


class Terminal:
    def __init__(self, console: Console) -> None:
        self.console = console
        self._bar: Progress | None = None
        self._task = TaskID(0)

    def begins(self, name: str, total: int | None) -> None:
        if not self.console.is_terminal:
            return
        what = TextColumn(f"[bold]{name:<{NAME_WIDTH}}[/]")
        spinner = SpinnerColumn(style="cyan")
        if total is None:
            parts = (spinner, what, TimeElapsedColumn())
            self._bar = Progress(*parts, console=self.console, transient=True)
        else:
            count = TextColumn("{task.completed:.0f} of {task.total:.0f} confirmations")
            self._bar = Progress(
                spinner, what, BarColumn(bar_width=30), count, console=self.console, transient=True
            )
        self._task = self._bar.add_task(name, total=total)
        self._bar.start()

    def advances(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done)

    def ends(self, step: Step) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        mark = Text("  ✓ ", "green") if step.is_done else Text("  ✗ ", "red")
        line = Text.assemble(
            mark, (f"{step.name:<{NAME_WIDTH}}", "bold"), (f"{_span(step.took_ms):>8}  ", "dim")
        )
        self.console.print(line + Text(step.said), soft_wrap=True)

    def chapter(self, story: Story) -> None:
        self.console.print()
        self.console.rule(f"[bold]{story.title}[/]", align="left", style="dim")

    def says(self, text: str) -> None:
        self.console.print(text, soft_wrap=True)

    def failed(self, story: Story) -> None:
        self.console.print(Text.assemble(("  ✗ ", "red"), story.error or ""), soft_wrap=True)


class Starting:
    """Chains that start side by side, each with a line of its own."""

    def __init__(self, console: Console, titles: Sequence[str]) -> None:
        self._since = time.perf_counter()
        self._bar = Progress(
            SpinnerColumn(style="cyan", finished_text=""),
            TextColumn("{task.description}"),
            TextColumn("[dim]{task.fields[said]}[/]"),
            console=console,
        )
        self._tasks = {
            title: self._bar.add_task(f"  {title:<24}", total=1, said="starting") for title in titles
        }

    def __enter__(self) -> Starting:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def says(self, title: str, text: str) -> None:
        self._bar.update(self._tasks[title], said=text)

    def ready(self, title: str) -> None:
        took = time.perf_counter() - self._since
        self._end(title, "[green]✓[/]", f"up after {took:.1f} s")

    def later(self, title: str) -> None:
        self._end(title, "[yellow]…[/]", "still starting; the others go first")

    def failed(self, title: str, why: str) -> None:
        first = why.strip().splitlines()[0] if why.strip() else "no reason given"
        self._end(title, "[red]✗[/]", f"[red]not started: {first}[/]")

    def _end(self, title: str, mark: str, said: str) -> None:
        self._bar.update(self._tasks[title], completed=1, description=f"{mark} {title:<24}", said=said)


def table_of(stories: Sequence[Story]) -> Table:
    table = Table(title="What moved", title_justify="left", header_style="bold", box=None, pad_edge=False)
    for heading in ("CHAIN", "PAID", "SATS IN", "SPENT", "LEFT", "PAYER'S WALLET", "SHOP'S WALLET", "TIME"):
        is_number = heading in ("SATS IN", "SPENT", "LEFT", "TIME")
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=True)
    for story in stories:
        if not story.is_complete:
            table.add_row(story.chain, Text("failed", "red"))
            continue
        table.add_row(
            story.chain,
            story.paid,
            f"{story.credited:,}",
            f"{story.spent:,}",
            f"{story.left:,}",
            f"{story.payer_before} → {story.payer_after}",
            f"{story.shop_before} → {story.shop_after}",
            f"{story.seconds:.1f} s",
        )
    return table


def _span(ms: float) -> str:
    return f"{ms:.0f} ms" if ms < 1000 else f"{ms / 1000:.1f} s"
