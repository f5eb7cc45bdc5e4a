"""What suites of others came to: results by test, judged with a reviewed list, written and told.

A test that failed or was skipped counts against us, unless the list names it and the thing outside of this
machine that it lacks.
"""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Of all tests, how many may lack something outside.
MOST_EXCUSED = 0.1


@dataclass(frozen=True)
class Result:
    test: str
    outcome: str
    why: str = ""
    # What it lacks, if the list names it.
    lacks: str | None = None


def of_pytest(report: Path) -> Iterator[Result]:
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').replace('.', '/')}::{case.get('name')}"
        wrong = next((child for child in case if child.tag in ("failure", "error", "skipped")), None)
        if wrong is None:
            yield Result(name, "passed")
        else:
            outcome = "skipped" if wrong.tag == "skipped" else "failed"
            yield Result(name, outcome, brief(wrong.get("message") or wrong.text or ""))


def brief(text: str) -> str:
    return " ".join(text.split())[:400]


def judged(result: Result, excuses: Mapping[str, str]) -> Result:
    return Result(result.test, result.outcome, result.why, excuses.get(result.test))


def write(seen: Mapping[str, Sequence[Result]], file: Path) -> None:
    file.parent.mkdir(exist_ok=True)
    shown: dict[str, Any] = {
        name: {"counts": _counts(results), "tests": [asdict(one) for one in results]}
        for name, results in seen.items()
    }
    file.write_text(json.dumps(shown, indent=1))


def _counts(results: Sequence[Result]) -> Counter[str]:
    return Counter("excused" if one.lacks and one.outcome != "passed" else one.outcome for one in results)


def report(seen: Mapping[str, Sequence[Result]], outside: Path, file: Path) -> int:
    """Prints what went wrong and how many went well. Returns the status for the shell."""
    every = [one for results in seen.values() for one in results]
    wrong = [one for one in every if one.outcome != "passed" and not one.lacks]
    healed = [one for one in every if one.outcome == "passed" and one.lacks]
    excused = [one for one in every if one.outcome != "passed" and one.lacks]
    for one in wrong:
        print(f"{one.outcome}: {one.test}\n    {one.why}")
    for one in healed:
        print(f"{outside.name} names what passes: {one.test}")
    for name, results in seen.items():
        print(f"{name}: {dict(_counts(results))}")
    print(file)
    is_short = len(excused) <= MOST_EXCUSED * len(every)
    return 0 if every and is_short and not wrong and not healed else 1
