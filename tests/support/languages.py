"""Clients of other languages: built from the checkout, and their own tests run against a platform of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TYPESCRIPT = ROOT / "clients" / "typescript"
GO = ROOT / "clients" / "go"


def run(words: list[str], folder: Path, environment: Mapping[str, str], timeout_s: float = 100) -> str:
    """Runs a program to its end; what it said is what a failed test shows."""
    done = subprocess.run(
        words,
        cwd=folder,
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def built_typescript() -> Path:
    """Returns the folder of the client and its tests as JavaScript."""
    if shutil.which("npm") is None:
        pytest.skip("no npm (apt-get install npm)")
    plain = dict(os.environ)
    run([str(ROOT / "scripts" / "make-node-modules")], ROOT, plain, timeout_s=600)
    build = TYPESCRIPT / "build" / (os.environ.get("PYTEST_XDIST_WORKER") or "tests")
    run(["node_modules/.bin/tsc", "-p", "tsconfig.test.json", "--outDir", str(build)], TYPESCRIPT, plain)
    return build
