"""Documents that say what the code says, or the build fails."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
NAMED_TEST = re.compile(r"`(tests/[\w./-]+)`")


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "guest").glob("*.md")])


def test_generated_references_and_the_lifecycle_diagram_are_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, "scripts/generate-docs", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_link_within_the_documents_leads_somewhere() -> None:
    broken = [
        f"{path.relative_to(ROOT)}: {target}"
        for path in documents()
        for target in LINK.findall(path.read_text())
        if not (path.parent / target).exists()
    ]
    assert not broken


def test_every_test_that_the_threat_model_names_exists() -> None:
    text = (ROOT / "docs" / "security" / "threat-model.md").read_text()
    missing = [name for name in NAMED_TEST.findall(text) if not (ROOT / name).exists()]
    assert not missing


def test_decisions_are_numbered_without_gaps_or_twins() -> None:
    numbers = sorted(int(p.name[:4]) for p in (ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
