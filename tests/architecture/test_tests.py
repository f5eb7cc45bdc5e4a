"""Rules of the tests themselves: what they share lives in `tests/support`, and no test stands on another."""

from __future__ import annotations

import ast
import os
import subprocess
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.architecture.reach import statements
from tests.support.leftovers import clear_dead_runs, own

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tests", "bench", "testchains")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def sources() -> list[Path]:
    return sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))


@cache
def imported(path: Path) -> Sequence[tuple[str, str]]:
    """Modules of the tests that a file imports from, and the names it wants of them."""
    found: list[tuple[str, str]] = []
    for node in statements(tree_of(path).body):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tests":
            found += ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            found += ((alias.name, "") for alias in node.names if alias.name.startswith("tests."))
    return found


@cache
def file_of(module: str) -> Path | None:
    where = ROOT / module.replace(".", "/")
    found = (where.with_suffix(".py"), where / "__init__.py")
    return next((path for path in found if path.is_file()), None)


@cache
def bound_in(path: Path) -> set[str]:
    """Every name that a module binds, wherever in its file: enough to find what was moved or renamed."""
    names = {node.id for node in ast.walk(tree_of(path)) if isinstance(node, ast.Name)}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_nothing_is_imported_from_a_test_or_a_conftest() -> None:
    """What two files need is in `tests/support`; a `conftest.py` only says which fixtures a folder has."""
    forbidden = [
        f"{named(path)}: {module} {name}"
        for path in sources()
        for module, name in imported(path)
        if any(part == "conftest" or part.startswith("test_") for part in [*module.split("."), name])
    ]
    assert not forbidden


def test_what_tests_import_of_each_other_is_there() -> None:
    """Seen without running them: a slow test whose import broke is otherwise found weeks later."""
    missing = []
    for path in sources():
        for module, name in imported(path):
            where = file_of(module)
            is_there = where and (not name or name in bound_in(where) or file_of(f"{module}.{name}"))
            if not is_there:
                missing.append(f"{named(path)}: {module} {name}")
    assert not missing


def test_no_two_tests_of_a_file_have_one_name() -> None:
    """The second would silently replace the first."""
    twice = []
    for path in sources():
        groups = [tree_of(path), *(n for n in tree_of(path).body if isinstance(n, ast.ClassDef))]
        for group in groups:
            tests = [
                n.name
                for n in group.body
                if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name.startswith("test_")
            ]
            twice += [f"{named(path)}: {name}" for name, count in Counter(tests).items() if count > 1]
    assert not twice


def _is_time(node: ast.expr) -> bool:
    """`time.monotonic() - began`, or a name that says as much."""
    clocks = {"monotonic", "perf_counter"}
    return any(
        (isinstance(part, ast.Attribute) and part.attr in clocks)
        or (isinstance(part, ast.Name) and part.id in {"took", "elapsed", "lasted"})
        for part in ast.walk(node)
    )


def _is_tight(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Compare)
        and _is_time(node.left)
        and isinstance(node.ops[0], ast.Lt | ast.LtE)
        and isinstance(node.comparators[0], ast.Constant)
        and float(node.comparators[0].value) < 2  # type: ignore[arg-type]
    )


def test_who_measures_less_than_two_seconds_is_alone() -> None:
    """Beside other tests a process may get no turn for that long."""
    beside = [
        f"{named(path)}: {test.name}"
        for path in sources()
        if path.name.startswith("test_")
        for test in tree_of(path).body
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(isinstance(node, ast.Assert) and _is_tight(node.test) for node in ast.walk(test))
        and not any({"alone", "long"} & set(ast.unparse(mark).split(".")) for mark in test.decorator_list)
    ]
    assert not beside


def test_what_a_killed_run_left_is_removed_and_nothing_of_others(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    root = tmp_path / "pytest-of-me"
    for name, lock in {"pytest-1": ended.pid, "pytest-2": os.getpid(), "pytest-3": None}.items():
        (root / name / "state" / "pool").mkdir(parents=True)
        if lock is not None:
            (root / name / ".lock").write_text(str(lock))
    (root / "garbage-1").mkdir()
    temporary = [tmp_path / f"sbx-tests-{pid}-abc" for pid in (ended.pid, os.getpid())]
    for each in temporary:
        each.mkdir()
    pool = root / "pytest-1" / "state" / "pool"
    if os.geteuid() == 0:
        in_use = own(root / "pytest-2") / "state" / "pool"
        for each in (pool, in_use):
            subprocess.run(["mount", "-t", "tmpfs", "none", each], check=True)
        assert clear_dead_runs(root) == [f"mount {pool}"]
        subprocess.run(["umount", in_use], check=True)
    clear_dead_runs(root)
    assert sorted(left.name for left in root.iterdir()) == ["pytest-2", "pytest-3"]
    assert [each.exists() for each in temporary] == [False, True]
