"""The figures as pictures: every round as a dot, medians as bars, bars to reach as lines."""

from __future__ import annotations

from pathlib import Path

from matplotlib.figure import Figure

from bench.measurements import Report, Row, Samples

OURS, THEIRS, LIMIT = "#1f6feb", "#8b949e", "#cf222e"


def draw(report: Report, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    timed = [row for row in report.rows if row.baseline is not None]
    made = [_ratios(report, folder / "ratios.png")]
    made += [_rounds(timed, folder / "rounds.png")] if timed else []
    steps = [one for one in report.extras if one.name.startswith("create: ")]
    made += [_steps(steps, folder / "create-steps.png")] if steps else []
    return made


def _ratios(report: Report, path: Path) -> Path:
    """How far each figure is from its bar: 1 is the bar, less is better."""
    rows = list(report.rows)[::-1]
    shares = [_share(row) for row in rows]
    figure = Figure(figsize=(10, 0.5 * len(rows) + 1.5))
    axes = figure.subplots()
    axes.barh([row.figure for row in rows], shares, color=[OURS if row.passed else LIMIT for row in rows])
    axes.axvline(1.0, color=LIMIT, linestyle="--", linewidth=1.5)
    axes.set_xlabel("share of the bar used (left of the line: reached)")
    axes.set_xlim(0, max(2.0, *(share + 1.0 for share in shares)))
    for index, (row, share) in enumerate(zip(rows, shares, strict=True)):
        text = f"{row.value:.2f} ({row.bar.text})"
        axes.text(share + 0.03, index, text, va="center", fontsize=8, backgroundcolor="white")
    return _save(figure, path)


def _share(row: Row) -> float:
    if row.bar.limit == 0:
        return 0.0 if row.passed else 1.2
    return row.bar.limit / row.value if row.bar.at_least else row.value / row.bar.limit


def _rounds(rows: list[Row], path: Path) -> Path:
    columns = 3
    lines = -(-len(rows) // columns)
    figure = Figure(figsize=(13, 3.2 * lines))
    grid = figure.subplots(lines, columns, squeeze=False)
    for axes in grid.flat[len(rows) :]:
        axes.axis("off")
    for axes, row in zip(grid.flat, rows, strict=False):
        assert row.baseline is not None
        for samples, colour in ((row.baseline, THEIRS), (row.subject, OURS)):
            axes.plot(samples.values, ".", color=colour, markersize=4, label=samples.name)
            axes.axhline(samples.median, color=colour, linewidth=1)
        axes.set_title(f"{row.figure}: {row.value:.2f} ×", fontsize=10)
        axes.set_ylim(bottom=0)
        axes.set_xlabel("round", fontsize=8)
        axes.set_ylabel(row.subject.unit, fontsize=8)
        axes.legend(fontsize=7)
    return _save(figure, path)


def _steps(steps: list[Samples], path: Path) -> Path:
    figure = Figure(figsize=(9, 0.45 * len(steps) + 1.5))
    axes = figure.subplots()
    names = [one.name.removeprefix("create: ") for one in steps][::-1]
    medians = [one.median for one in steps][::-1]
    axes.barh(names, medians, color=OURS)
    for index, median in enumerate(medians):
        axes.text(median, index, f" {median:.2f} ms", va="center", fontsize=8)
    axes.set_xlabel("ms, median (as the platform reports it)")
    return _save(figure, path)


def _save(figure: Figure, path: Path) -> Path:
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    return path
