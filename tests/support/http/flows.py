"""Which test shows which operation. `@flow("createSandbox")` claims that a platform of this test answers it
with the status that is declared as its success. Checked when the test has passed, its platforms closed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from sandboxer.wire.operations.declaration import Upgrade
from sandboxer.wire.operations.table import OPERATIONS

F = TypeVar("F", bound=Callable[..., object])
TESTS = Path(__file__).parents[2] / "http"
# Rings that a change is offered without.
NOT_IN_THE_GATE = ("mark.slow", "mark.long")
# Method, path template and status of an answer.
Shown = tuple[str, str, int]
# What platforms that were closed since the last test had answered.
_answered: set[Shown] = set()
_has_passed = pytest.StashKey[bool]()


def flow(*operations: str) -> Callable[[F], F]:
    def mark(test: F) -> F:
        test.__flows__ = operations  # type: ignore[attr-defined]
        return test

    return mark


def claimed() -> set[str]:
    """Every claim of `tests/http` that the gate runs, read from the source: no test is imported for it."""
    return {name for file in TESTS.glob("test_*.py") for name in _claims(ast.parse(file.read_text()))}


def _claims(module: ast.Module) -> Iterator[str]:
    marks = [ast.unparse(one) for one in module.body if isinstance(one, ast.Assign)]
    if _is_left_out(marks):
        return
    for test in module.body:
        if isinstance(test, ast.FunctionDef | ast.AsyncFunctionDef):
            if _is_left_out([ast.unparse(one) for one in test.decorator_list]):
                continue
            for mark in test.decorator_list:
                if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "flow":
                    yield from (ast.literal_eval(word) for word in mark.args)


def _is_left_out(marks: list[str]) -> bool:
    return any(word in mark for mark in marks for word in NOT_IN_THE_GATE)


def declared() -> dict[str, Shown]:
    """What each operation answers when all is well, by its id, as platforms count answers."""
    return {
        one.id: ("WEBSOCKET" if isinstance(one.answer, Upgrade) else one.method, one.path, one.answer.status)
        for one in OPERATIONS
    }


def note_answers(answered: set[Shown]) -> None:
    """Called when a platform is closed: until then it may be about to count one."""
    _answered.update(answered)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    # Skipped or failed, it raises here.
    result = yield
    item.stash[_has_passed] = True
    return result


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    result = yield
    claims = getattr(getattr(item, "function", None), "__flows__", ())
    if claims and item.stash.get(_has_passed, False):
        known = declared()
        missing = {name: known[name] for name in claims if known[name] not in _answered}
        assert not missing, f"claimed, and never answered so in this test: {missing}"
    _answered.clear()
    return result
