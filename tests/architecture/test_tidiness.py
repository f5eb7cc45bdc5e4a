"""Rules that matter are tests: sizes, names and where things may be read from."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
BANNED_WORDS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "impl"}
BANNED_CLASS_ENDINGS = ("Manager", "Handler", "Factory", "Impl", "Utils", "Helper")


def tracked(*patterns: str) -> list[Path]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return [ROOT / line for line in listing.splitlines() if (ROOT / line).is_file()]


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


@pytest.mark.parametrize("path", tracked("*.py", "*.c", "*.h"), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_file_is_longer_than_five_hundred_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= MAX_FILE_LINES


@pytest.mark.parametrize("path", tracked("*.py"), ids=lambda p: str(p.relative_to(ROOT)))
def test_no_function_is_longer_than_seventy_lines(path: Path) -> None:
    long = [
        f"{node.name}: {(node.end_lineno or 0) - node.lineno + 1}"
        for node in functions(path)
        if (node.end_lineno or 0) - node.lineno + 1 > MAX_FUNCTION_LINES
    ]
    assert not long


def test_no_module_or_class_hides_behind_an_empty_word() -> None:
    bad = [str(p.relative_to(ROOT)) for p in tracked("src/*.py") if p.stem in BANNED_WORDS]
    for path in tracked("src/*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name.endswith(BANNED_CLASS_ENDINGS):
                bad.append(f"{path.relative_to(ROOT)}: {node.name}")
    assert not bad


def test_only_settings_reads_the_environment() -> None:
    pattern = re.compile(r"os\.(environ|getenv)")
    allowed = {"src/sandboxer/settings.py", "src/sandboxer/sdk/credentials.py"}
    # They run inside a sandbox, whose environment is what the platform gave it.
    inside = "src/sandboxer/work/sessions/drivers/"
    named = [str(p.relative_to(ROOT)) for p in tracked("src/*.py") if pattern.search(p.read_text())]
    bad = [name for name in named if name not in allowed and not name.startswith(inside)]
    assert not bad


def test_only_the_problem_table_of_the_http_edge_knows_status_codes_of_errors() -> None:
    bad = [
        str(p.relative_to(ROOT))
        for p in tracked("src/*.py")
        if "HTTPException" in p.read_text() and "edges/http" not in str(p)
    ]
    assert not bad


def test_every_module_says_why_it_exists() -> None:
    silent = [
        str(p.relative_to(ROOT))
        for p in tracked("src/*.py")
        if p.read_text().strip() and ast.get_docstring(ast.parse(p.read_text())) is None
    ]
    assert not silent


def test_nothing_is_started_and_forgotten() -> None:
    bad = []
    for path in tracked("src/*.py"):
        text = path.read_text()
        bad += [f"{path.relative_to(ROOT)}: asyncio.gather"] if "asyncio.gather(" in text else []
    assert not bad


def test_no_machine_path_or_secret_is_committed() -> None:
    pattern = re.compile(r"/work/(main|shared)|sbx-sk-[A-Za-z0-9_-]{20,}")
    me = Path(__file__).resolve()
    bad = [
        str(p.relative_to(ROOT))
        for p in tracked()
        if p.resolve() != me and p.suffix not in {".png"} and pattern.search(p.read_text(errors="replace"))
    ]
    assert not bad
