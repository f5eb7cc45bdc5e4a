"""Other people's programs, each with our client in an environment of its own."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.e2b import python_with
from tests.support.platforms import ROOT, Up


def python_beside(*packages: str, of: Sequence[str] = ()) -> str:
    """Returns the interpreter of an environment with these packages and our client, with its extras."""
    extras = f"[{','.join(of)}]" if of else ""
    return python_with(*packages, "-e", f"{ROOT}{extras}")


def driven(python: str, program: str, up: Up, folder: Path, *words: str, timeout_s: float = 280) -> str:
    """Runs a program that finds the platform by its environment, and returns what it printed."""
    (folder / "drive.py").write_text(program)
    done = subprocess.run(
        [python, *words, str(folder / "drive.py")],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        env=up.environment,
        cwd=folder,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-8000:]
    return done.stdout
