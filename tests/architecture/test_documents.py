"""Documents and generated code that say what the code says, or the build fails."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXPLANATION = ROOT / "docs" / "explanation"
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)")
NAMED_DOCUMENT = re.compile(r"\b(docs/[\w./-]*[\w/])")
PYTHON_BOX = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAMED_TEST = re.compile(r"`(tests/[\w./-]+)`")


def documents() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "guest").glob("*.md")])


@pytest.mark.parametrize(
    "script", ["generate-calls", "generate-clients", "generate-docs", "generate-sync", "generate-tools"]
)
def test_what_is_generated_is_up_to_date(script: str) -> None:
    done = subprocess.run(
        [sys.executable, f"scripts/{script}", "--check"],
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


def test_every_example_in_python_is_python() -> None:
    broken = []
    for path in documents():
        for box in PYTHON_BOX.findall(path.read_text()):
            try:
                compile(box, str(path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
            except SyntaxError as error:
                broken.append(f"{path.relative_to(ROOT)}: {error}: {box[:60]}")
    assert not broken


def test_every_page_is_reached_from_the_first_one() -> None:
    reached, waiting = set(), [ROOT / "docs" / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [page.parent / target for target in LINK.findall(page.read_text())]
    lonely = [str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md") if page not in reached]
    assert not lonely


def test_every_class_of_the_client_has_its_place_in_the_reference() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs/reference/python").glob("*.md"))
    shown = set(re.findall(r"^::: sandboxer\.sdk\.([\w.]+)$", pages, re.MULTILINE))
    written = {
        f"sync.{path.stem}.{kind.name}"
        for path in (ROOT / "src/sandboxer/sdk/sync").glob("*.py")
        if path.stem not in {"line", "native"}
        for kind in ast.parse(path.read_text()).body
        if isinstance(kind, ast.ClassDef) and not kind.name.startswith("_")
    }
    assert {name for name in shown if name.startswith("sync.")} == written


def test_every_document_that_the_code_names_exists() -> None:
    missing = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in ("src", "guest", "deploy", "scripts", "bench", "images")
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix in {".py", ".c", ".h", ".yaml", ".service", ".md", ""}
        # Of whoever installed the checkout in an environment, as tests of adapters do.
        if path.parent.suffix != ".egg-info"
        for name in NAMED_DOCUMENT.findall(path.read_text(errors="replace"))
        if not (ROOT / name).exists()
    ]
    assert not missing


def test_every_test_that_the_threat_model_names_exists() -> None:
    text = (EXPLANATION / "threat-model.md").read_text()
    missing = [name for name in NAMED_TEST.findall(text) if not (ROOT / name).exists()]
    assert not missing


def test_decisions_are_numbered_without_gaps_or_twins() -> None:
    numbers = sorted(int(p.name[:4]) for p in (EXPLANATION / "decisions").glob("[0-9]*.md"))
    assert numbers == list(range(1, len(numbers) + 1))
