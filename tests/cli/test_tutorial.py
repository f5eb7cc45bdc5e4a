"""The tutorial, typed word for word on a real platform: what it says comes out has to come out."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.platforms import real_platform, why_not_real

PAGE = Path(__file__).parents[2] / "docs" / "tutorial" / "first-sandbox.md"
BOX = re.compile(r"^```(?P<kind>sh|python)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)


def script() -> str:
    """All boxes between the marks, in their order; a program is run as the page says."""
    typed = PAGE.read_text().partition("<!-- typed: begin -->")[2].partition("<!-- typed: end -->")[0]
    boxes = [
        box["text"] if box["kind"] == "sh" else f"python - <<'THE_END'\n{box['text']}THE_END\n"
        for box in BOX.finditer(typed)
    ]
    return "set -eux\n" + "".join(boxes)


@pytest.mark.timeout(300)
@pytest.mark.skipif(shutil.which("jq") is None, reason="the tutorial uses jq")
def test_the_tutorial_can_be_typed_as_it_stands(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # Four of the tutorial's sandboxes and their snapshot, in sparse files.
    with real_platform(tmp_path / "state", pool_mb=8192) as up:
        done = subprocess.run(
            ["bash", "-c", script()],
            env=up.environment | {"PATH": tools},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    said = done.stdout.splitlines()
    assert "42" in said
    assert said.count("45") == 2, "once as it was copied out, once after the disk came back"
    assert "hi" in said
