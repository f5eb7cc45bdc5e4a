"""Rules that matter are tests: sizes, names and where things may be read from."""

from __future__ import annotations

import ast
import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.architecture.reach import statements

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70
BANNED_WORDS = {"utils", "util", "helpers", "helper", "common", "misc", "base", "impl"}
BANNED_CLASS_ENDINGS = ("Manager", "Handler", "Factory", "Impl", "Utils", "Helper")


@cache
def _listed() -> tuple[str, ...]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    return tuple(line for line in listing.splitlines() if (ROOT / line).is_file())


def tracked(*endings: str, under: str = "") -> list[Path]:
    return [ROOT / line for line in _listed() if line.startswith(under) and line.endswith(endings or ("",))]


@cache
def text_of(path: Path) -> str:
    return path.read_text(errors="replace")


@dataclass(frozen=True)
class Facts:
    """What the rules ask of a file; its tree is not kept."""

    has_docstring: bool
    classes: tuple[str, ...]
    functions: tuple[tuple[str, int], ...]


@cache
def facts_of(path: Path) -> Facts:
    module = ast.parse(text_of(path))
    classes, functions = [], []
    for node in statements(module.body):
        if isinstance(node, ast.ClassDef):
            classes.append(node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append((node.name, (node.end_lineno or 0) - node.lineno + 1))
    return Facts(ast.get_docstring(module) is not None, tuple(classes), tuple(functions))


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


# One test for each rule, which names every file that breaks it.


def test_no_file_is_longer_than_five_hundred_lines() -> None:
    lines = {named(path): len(text_of(path).splitlines()) for path in tracked(".py", ".c", ".h")}
    assert not {name: count for name, count in lines.items() if count > MAX_FILE_LINES}


def test_no_function_is_longer_than_seventy_lines() -> None:
    long = [
        f"{named(path)}: {name}: {lines}"
        for path in tracked(".py")
        for name, lines in facts_of(path).functions
        # A generated call is as long as what an operation takes.
        if lines > MAX_FUNCTION_LINES and not text_of(path).startswith("# Written by scripts/")
    ]
    assert not long


def test_no_module_or_class_hides_behind_an_empty_word() -> None:
    bad = [named(path) for path in tracked(".py", under="src/") if path.stem in BANNED_WORDS]
    bad += [
        f"{named(path)}: {name}"
        for path in tracked(".py", under="src/")
        for name in facts_of(path).classes
        if name.endswith(BANNED_CLASS_ENDINGS)
    ]
    assert not bad


def test_only_settings_reads_the_environment() -> None:
    pattern = re.compile(r"os\.(environ|getenv)")
    allowed = {"src/sandboxer/settings/__init__.py", "src/sandboxer/sdk/credentials.py"}
    # The command line reads nothing: it tells pydantic to look for no plugins.
    allowed.add("src/sandboxer/edges/cli/__init__.py")
    # They run inside a sandbox, whose environment is what the platform gave it.
    inside = "src/sandboxer/work/sessions/drivers/"
    reading = [named(path) for path in tracked(".py", under="src/") if pattern.search(text_of(path))]
    bad = [name for name in reading if name not in allowed and not name.startswith(inside)]
    assert not bad


def test_only_the_problem_table_of_the_http_edge_knows_status_codes_of_errors() -> None:
    bad = [
        named(path)
        for path in tracked(".py", under="src/")
        if "HTTPException" in text_of(path) and "edges/http" not in named(path)
    ]
    assert not bad


def test_every_module_says_why_it_exists() -> None:
    silent = [
        named(path)
        for path in tracked(".py", under="src/")
        if text_of(path).strip() and not facts_of(path).has_docstring
    ]
    assert not silent


def test_nothing_is_started_and_forgotten() -> None:
    bad = [named(path) for path in tracked(".py", under="src/") if "asyncio.gather(" in text_of(path)]
    assert not bad


def test_records_are_kept_by_the_repository_alone() -> None:
    """Tries after a lost fence, watchers and fenced writes of a record are in `store/` and nowhere else."""
    by_hand = re.compile(r"_TRIES\b|replace_record|_watchers: list|c\.id ==.*\.c\.version ==")
    store = ROOT / "src" / "sandboxer" / "store"
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in tracked(".py", under="src/sandboxer/")
        if store not in path.parents
        for line in text_of(path).splitlines()
        if by_hand.search(line)
    ]
    assert not found, "\n".join(found)


def test_no_machine_path_or_secret_is_committed() -> None:
    pattern = re.compile(r"/work/(main|shared)|sbx-sk-[A-Za-z0-9_-]{20,}")
    me = Path(__file__).resolve()
    bad = [
        named(path)
        for path in tracked()
        if path.resolve() != me and path.suffix not in {".png"} and pattern.search(text_of(path))
    ]
    assert not bad
