"""The README, the tutorial and a guide, typed word for word on a real platform: they print what they say."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.platforms import real_platform, why_not_real

ROOT = Path(__file__).parents[2]
TYPED = re.compile(r"<!-- typed: begin -->(.*?)<!-- typed: end -->", re.DOTALL)
BOX = re.compile(r"^```(?P<kind>sh|console|python)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
pytestmark = pytest.mark.timeout(300)


def script(page: Path) -> str:
    """All boxes between the marks, in their order; a program is run as the page says."""
    boxes = [
        in_shell(box["kind"], box["text"])
        for typed in TYPED.findall(page.read_text())
        for box in BOX.finditer(typed)
    ]
    return "set -eux\n" + without_packages("".join(boxes))


def in_shell(kind: str, text: str) -> str:
    """What a box has, as a shell runs it."""
    if kind == "python":
        return f"python - <<'THE_END'\n{text}THE_END\n"
    return "".join(re.findall(r"^\$ (.*\n)", text, re.MULTILINE)) if kind == "console" else text


def without_packages(text: str) -> str:
    """Leaves out what asks a registry, where there is none."""
    try:
        socket.create_connection(("pypi.org", 443), 5).close()
    except OSError:
        return "".join(line for line in text.splitlines(keepends=True) if "cowsay" not in line)
    return text


def typed(page: str, folder: Path) -> list[str]:
    """What the page prints, line by line."""
    if why := why_not_real():
        pytest.skip(why)
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Five sandboxes and their snapshot, in sparse files.
    with real_platform(folder / "state", pool_mb=8192) as up:
        done = subprocess.run(
            ["bash", "-c", script(ROOT / page)],
            env=up.environment | {"PATH": tools},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def test_the_tutorial_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    said = typed("docs/tutorial/first-sandbox.md", tmp_path)
    assert "42" in said
    assert "and no further" in said
    assert "done after 4 steps: fib.py is written and its test passes" in said
    assert len([line for line in said if line.endswith("832040") and line.startswith("<Sandbox")]) == 3


def test_the_readme_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    said = typed("README.md", tmp_path)
    assert "42" in said
    assert said.count("kept") == 1, "by `run`"
    assert 'print("kept")' in said, "by the service"
    assert any(line.startswith("<Sandbox") and line.endswith("from Python") for line in said)


def test_the_guide_to_snapshots_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    said = typed("docs/guides/snapshots.md", tmp_path)
    assert "x = 42" in said
    assert sum(line.endswith(" ready") for line in said) == 3
    assert any(line.startswith("└── snp_") and " after kept " in line for line in said)
