"""The `sandboxer` command as users run it: a process of its own, against a served platform."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.servers.platforms import Up, real_platform, scripted_platform, why_not_real

PROGRAM = [sys.executable, "-m", "sandboxer.edges.cli.main"]


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


@dataclass(frozen=True)
class Cli:
    environment: dict[str, str]

    def __call__(self, *words: str, stdin: bytes | None = None, **more: str) -> Said:
        done = subprocess.run(
            [*PROGRAM, *words],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            env=self.environment | more,
            timeout=60,
            check=False,
        )
        return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


@pytest.fixture(scope="session")
def up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with scripted_platform(tmp_path_factory.mktemp("scripted") / "state") as running:
        yield running


@pytest.fixture(scope="session")
def real_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if why := why_not_real():
        pytest.skip(why)
    with real_platform(tmp_path_factory.mktemp("real") / "state") as running:
        yield running


@pytest.fixture
def cli(up: Up) -> Cli:
    return Cli(up.environment)


@pytest.fixture
def real_cli(real_up: Up) -> Cli:
    return Cli(real_up.environment)


@pytest.fixture
def sandbox(up: Up) -> Iterator[Sandbox]:
    with Sandboxer(owner_file=up.owner_file, url=up.url) as client, client.create() as made:
        yield made


@pytest.fixture
def real_sandbox(real_up: Up) -> Iterator[Sandbox]:
    with Sandboxer(owner_file=real_up.owner_file, url=real_up.url) as client, client.create() as made:
        yield made
