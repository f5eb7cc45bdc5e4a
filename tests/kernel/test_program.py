"""Modules that are imported when they are first used, from any thread."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandboxer.kernel.program import late

NAME = "sandboxer_test_module_that_takes_long"


def test_who_asks_while_another_thread_imports_waits_for_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go = threading.Event(), threading.Event()
    (tmp_path / f"{NAME}.py").write_text("begun.set()\ngo.wait(10)\nclass Model: ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    # What the module finds as its own: it has no other way to these two.
    monkeypatch.setattr("builtins.begun", begun, raising=False)
    monkeypatch.setattr("builtins.go", go, raising=False)
    try:
        with ThreadPoolExecutor() as threads:
            first = threads.submit(lambda: late(NAME).Model)
            assert begun.wait(10)
            second = threads.submit(lambda: late(NAME).Model)
            with pytest.raises(TimeoutError):
                second.result(0.2)
            go.set()
            assert first.result(10) is second.result(10)
    finally:
        go.set()
        sys.modules.pop(NAME, None)
