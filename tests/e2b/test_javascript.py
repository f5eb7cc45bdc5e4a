"""The same through E2B's own JavaScript client, in node."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from testchains.stacks.simnet import installed, why_not

FOLDER = Path(__file__).with_name("node")


def test_a_program_in_node_does_what_it_does_with_e2b(real_key: str) -> None:
    if why := why_not():
        pytest.skip(why)
    program = installed(FOLDER, "e2b") / "drive.mjs"
    done = subprocess.run(["node", str(program)], capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "template": "base",
        "metadata": {"by": "node"},
        "run": ["out\n/home/user\n", "err\n", 0, "out\n/home/user\n"],
        "failed": [True, 4],
        "cat": "typed\n",
        "listed": True,
        "killed": [True, False],
        "read": ["text", "two"],
        "names": ["1", "2"],
        "missing": True,
        "made": [True, False],
        "terminal": True,
        "paused": "paused",
        "again": "text",
        "gone": [True, False],
    }
