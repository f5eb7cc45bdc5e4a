"""`bench`: words that cannot be taken together are refused before anything is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_a_comparison_of_two_trees_takes_no_single_scenario() -> None:
    words = [sys.executable, "-m", "bench", "--against", "HEAD", "--only", "cold"]
    said = subprocess.run(words, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert said.returncode == 2
    assert "leave --only away" in said.stderr
