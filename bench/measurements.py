"""Samples, their summary, and what a scenario has to reach: values only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Samples:
    """What was measured, in rounds."""

    name: str
    unit: str
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def p95(self) -> float:
        ordered = sorted(self.values)
        return ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))]

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "unit": self.unit,
            "rounds": len(self.values),
            "median": round(self.median, 3),
            "p95": round(self.p95, 3),
            "min": round(min(self.values), 3),
            "max": round(max(self.values), 3),
            "values": [round(value, 3) for value in self.values],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """`ratio` of subject to baseline (or the plain value) must be at most, or at least, `limit`."""

    text: str
    limit: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table: a figure, what it is compared with, and whether it is good enough."""

    figure: str
    subject: Samples
    baseline: Samples | None
    bar: Bar
    # Baseline over subject, for bars that say "x times faster".
    is_inverse: bool = False
    note: str = ""

    @property
    def value(self) -> float:
        """What the bar is held against."""
        if self.baseline is None:
            return self.subject.median
        if self.is_inverse:
            return self.baseline.median / self.subject.median
        return self.subject.median / self.baseline.median

    @property
    def passed(self) -> bool:
        return self.bar.holds(self.value)

    def as_json(self) -> dict[str, Any]:
        return {
            "figure": self.figure,
            "subject": self.subject.as_json(),
            "baseline": self.baseline.as_json() if self.baseline else None,
            "value": round(self.value, 3),
            "bar": asdict(self.bar),
            "passed": self.passed,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """What could not be measured, and why. Never silent."""

    name: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A whole run: where, when, the rows, and measurements that no bar is held against."""

    machine: dict[str, str]
    started_at: str
    rows: Sequence[Row]
    extras: Sequence[Samples] = ()
    skipped: Sequence[Skipped] = ()

    @property
    def passed(self) -> bool:
        return all(row.passed for row in self.rows)

    def as_json(self) -> dict[str, Any]:
        return {
            "machine": self.machine,
            "started_at": self.started_at,
            "passed": self.passed,
            "complete": not self.skipped,
            "rows": [row.as_json() for row in self.rows],
            "extras": [samples.as_json() for samples in self.extras],
            "skipped": [asdict(one) for one in self.skipped],
        }
