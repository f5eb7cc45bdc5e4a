"""How far a build is, read from what mmdebstrap and apt say as they go. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

_NEW = re.compile(r"(\d+) newly installed")
_STEP = re.compile(r"(?:Get:\d+|Unpacking|Setting up) (.*)")
# Each package of a stage is fetched, unpacked and set up.
_STEPS_PER_PACKAGE = 3

# What mmdebstrap announces → our phase, and the share of the whole build done when it begins (measured).
_PHASES = (
    ("running apt-get update", "package lists", 0.0),
    ("downloading packages with apt", "base system", 0.05),
    ("extracting archives", "base system", 0.12),
    ("installing essential packages", "base system", 0.18),
    ("installing remaining packages", "packages", 0.30),
    ("cleaning package lists", "cleaning", 0.95),
)


@dataclass(frozen=True)
class Progress:
    phase: str
    fraction: float  # of the whole build, 0 to 1
    detail: str = ""


Report = Callable[[Progress], None]


class ProgressReader:
    """Turns output lines into progress that never goes back."""

    def __init__(self) -> None:
        self._phase = "starting"
        self._begins = 0.0
        self._ends = _PHASES[0][2]
        self._expected = 0
        self._steps = 0

    def read(self, line: str) -> Progress | None:
        for index, (words, phase, begins) in enumerate(_PHASES):
            if line.startswith("I: ") and words in line:
                self._phase, self._begins, self._expected, self._steps = phase, begins, 0, 0
                self._ends = _PHASES[index + 1][2] if index + 1 < len(_PHASES) else 0.97
                return Progress(phase, begins)
        if new := _NEW.search(line):
            self._expected = int(new[1]) * _STEPS_PER_PACKAGE
        if not (step := _STEP.match(line)):
            return None
        self._steps += 1
        share = min(self._steps / self._expected, 1.0) if self._expected else 0.0
        return Progress(self._phase, self._begins + (self._ends - self._begins) * share, _subject(step[0]))


def _subject(line: str) -> str:
    """`Get:7 http://… bookworm/main amd64 bash amd64 5.2 [1 kB]` and `Unpacking bash (5.2)`: bash."""
    words = line.split()
    if words[0].startswith("Get:"):
        return words[4] if len(words) > 7 else words[2]
    return words[2] if words[0] == "Setting" else words[1]
