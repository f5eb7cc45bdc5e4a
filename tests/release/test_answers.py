"""What callers rely on does not change by accident: the document, and what every operation answers to whom.

`make freeze` writes both anew; the difference in git is then what a release changes for callers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.release.frozen import ANSWERS, DOCUMENT, answers_of, document, written_document
from tests.release.matrix import Cell, opened


@pytest.mark.timeout(600)
async def test_the_document_and_every_answer_are_as_they_were_frozen(tmp_path: Path) -> None:
    async with opened(tmp_path / "state") as served:
        shown = json.loads(written_document(document()))
        answers = json.loads(json.dumps(await answers_of(served)))
    changed = list(_differences(json.loads(DOCUMENT.read_text()), shown, "document"))
    changed += _changed_cells(json.loads(ANSWERS.read_text()), answers)
    text = "\n".join(changed[:40])
    assert not changed, f"{len(changed)} changes; `make freeze` takes them over if they are meant:\n{text}"


def _changed_cells(before: dict[str, dict[str, Cell]], now: dict[str, dict[str, Cell]]) -> list[str]:
    return [
        f"{operation}, {who}: {line}"
        for operation in sorted({*before, *now})
        for who in sorted({*before.get(operation, {}), *now.get(operation, {})})
        for line in _differences(before.get(operation, {}).get(who), now.get(operation, {}).get(who), "")
    ]


def _differences(before: Any, now: Any, where: str) -> list[str]:
    """One line for each place that differs."""
    if before == now:
        return []
    if isinstance(before, dict) and isinstance(now, dict):
        names = sorted({*before, *now})
        return [
            line
            for name in names
            for line in _differences(before.get(name), now.get(name), f"{where}/{name}")
        ]
    return [f"{where}: {str(before)[:200]} is now {str(now)[:200]}"]
