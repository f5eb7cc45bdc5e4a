"""The figures for people: a table in the terminal, and the same as Markdown."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.measurements import Report, Row, Samples

BEGIN, END = "<!-- figures -->", "<!-- /figures -->"


def machine_facts() -> dict[str, str]:
    cpu = next(
        (
            line.split(":", 1)[1].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    memory = int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    release = platform.freedesktop_os_release().get("PRETTY_NAME", "?")
    return {
        "cpu": f"{os.cpu_count()} × {cpu}",
        "memory": f"{memory} MB",
        "system": f"{release}, Linux {platform.release()}",
        "python": platform.python_version(),
        "load": " ".join(f"{part:.2f}" for part in os.getloadavg()),
    }


def print_table(report: Report, console: Console) -> None:
    table = Table(title="Figures", title_justify="left", header_style="bold")
    for heading in ("figure", "ours", "p95", "baseline", "its p95", "value", "bar", ""):
        table.add_column(heading, justify="left" if heading in ("figure", "bar", "") else "right")
    for row in report.rows:
        verdict = "[bold green]pass[/]" if row.passed else "[bold red]FAIL[/]"
        table.add_row(*cells(row), verdict)
    console.print(table)
    for row in report.rows:
        if row.note:
            console.print(f"[dim]{row.figure}:[/] {row.note}")
    extras = Table(title="Where the time goes (no bar)", title_justify="left", box=None)
    for heading in ("measurement", "median", "p95"):
        extras.add_column(heading, justify="left" if heading == "measurement" else "right")
    for samples in report.extras:
        extras.add_row(samples.name, amount(samples, samples.median), amount(samples, samples.p95))
    console.print(extras)
    for one in report.skipped:
        console.print(f"[yellow]not measured:[/] {one.name}: {one.why}")


def cells(row: Row) -> tuple[str, ...]:
    ours, floor = row.subject, row.baseline
    has_spread = len(ours.values) > 1
    return (
        row.figure,
        amount(ours, ours.median),
        amount(ours, ours.p95) if has_spread else "",
        amount(floor, floor.median) if floor else "",
        amount(floor, floor.p95) if floor else "",
        f"{row.value:.2f} ×" if floor else amount(ours, row.value),
        row.bar.text,
    )


def amount(samples: Samples, value: float) -> str:
    digits = 0 if abs(value) >= 100 or samples.unit == "things" else 2
    return f"{value:.{digits}f} {samples.unit}".removesuffix(" things")


def markdown(report: Report) -> str:
    lines = [
        "| Figure | ours, median | p95 | baseline | p95 | value | bar | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in report.rows:
        lines.append("| " + " | ".join((*cells(row), "pass" if row.passed else "**not reached**")) + " |")
    lines += ["", "| Where the time goes | median | p95 |", "|---|---|---|"]
    lines += [f"| {one.name} | {amount(one, one.median)} | {amount(one, one.p95)} |" for one in report.extras]
    return "\n".join(lines) + "\n"


def write_into(document: Path, report: Report) -> None:
    """Replaces the figures between the marks of a document that is kept in the repository."""
    before, _, rest = document.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    facts = ", ".join(f"{name}: {value}" for name, value in report.machine.items())
    notes = "".join(f"- {row.figure}: {row.note}\n" for row in report.rows if row.note)
    notes += "".join(f"- not measured: {one.name}: {one.why}\n" for one in report.skipped)
    figures = f"{report.started_at[:10]}; {facts}.\n\n{markdown(report)}\n{notes}"
    document.write_text(f"{before}{BEGIN}\n{figures}{END}{after}")
