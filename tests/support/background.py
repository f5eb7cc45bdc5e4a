"""A platform that `sandboxer up -d` starts, with the scripted backend, on a state folder of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxer.kernel.program import PROFILES
from sandboxer.store.lock import is_held


class Host:
    """The command, on a state folder of its own, with the scripted backend."""

    def __init__(self, folder: Path) -> None:
        self.state = folder / "state"
        profiles = folder / "profiles"
        profiles.mkdir()
        shipped = (PROFILES / "agent-dev.yaml").read_text()
        (profiles / "agent-dev.yaml").write_text(shipped.replace("ext.namespaces", "ext.scripted"))
        self.environment = {name: value for name, value in os.environ.items() if "SANDBOXER" not in name} | {
            "SANDBOXER_STATE_DIR": str(self.state),
            "SANDBOXER_PROFILES_DIR": str(profiles),
            "SANDBOXER_BACKENDS": "ext.scripted",
            "SANDBOXER_PORT": "0",
        }

    def __call__(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "sandboxer.edges.cli.main", *words],
            env=self.environment | more,
            capture_output=True,
            text=True,
            timeout=110,
        )
        # Lines are folded wherever they end.
        done.stderr = " ".join(done.stderr.split())
        return done


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    if is_held(made.state):
        made("down")
