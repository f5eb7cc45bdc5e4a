"""Finds OCI runtimes for tests, which are skipped with the reason where one cannot run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support.real_backend import require_walls

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "sandboxer-runsc"


def require_runtime(name: str) -> str:
    require_walls()
    built = sorted(CACHE.glob("*/runsc"), key=lambda path: path.stat().st_mtime)
    found = str(built[-1]) if name == "runsc" and built else shutil.which(name)
    if found is None:
        remedy = "run scripts/build-runsc" if name == "runsc" else f"install {name}"
        pytest.skip(f"there is no {name}: {remedy}")
    return found
