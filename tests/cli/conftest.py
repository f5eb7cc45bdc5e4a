"""The `sandboxer` command as users run it: a process of its own, against a served platform."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.cli.forking import Forking, forking
from tests.servers.platforms import Up, real_platform, scripted_platform, why_not_real

PROGRAM = [sys.executable, "-m", "sandboxer.edges.cli.main"]


_open = ExitStack()


@cache
def _forking() -> Forking:
    return _open.enter_context(forking())


@pytest.fixture(scope="session", autouse=True)
def _forking_ends() -> Iterator[None]:
    yield
    _open.close()
    _forking.cache_clear()


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
        code, out, err = _forking().run(words, self.environment | more, stdin, timeout=110)
        return Said(code, out.decode(), err.decode())


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
