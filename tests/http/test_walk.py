"""The way a request takes through the packages stays short: `scripts/walk-request` counts it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts" / "walk-request"


def walked(*words: str) -> dict[str, int]:
    ended = subprocess.run(
        [sys.executable, SCRIPT, *words, "--json"], capture_output=True, text=True, check=True, timeout=110
    )
    counts: dict[str, int] = json.loads(ended.stdout)
    return counts


def test_a_paid_create_changes_packages_seldom_and_asks_the_database_little() -> None:
    counts = walked()
    # Some twenty of them choose the backend, and write down why.
    assert counts["changes_of_package"] <= 140
    assert counts["sql_statements"] <= 31
    assert counts["loads_of_sandboxes"] <= 1


def test_an_exec_asks_the_database_for_nothing() -> None:
    counts = walked("POST", "/v1/sandboxes/{}/exec", '{"command": "true"}')
    assert counts["changes_of_package"] <= 70
    assert counts["sql_statements"] == 0
