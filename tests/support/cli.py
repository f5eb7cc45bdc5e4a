"""The `sandboxer` command as users run it: a process of its own, against a served platform."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from tests.support.forking import forking
from tests.support.platforms import Up, real_platform, scripted_platform, why_not_real


class _Program:
    """The words that begin a command line for `subprocess`; forked as the others are."""

    def __iter__(self) -> Iterator[str]:
        shim = Path(__file__).with_name("forked.py")
        return iter([sys.executable, "-S", "-E", str(shim), forking().path])


PROGRAM = _Program()


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def items(self) -> Any:
        """Of a list that ended with this page."""
        found = self.json
        assert found.keys() == {"items", "next"}, found
        return found["items"]

    @property
    def error(self) -> Any:
        return json.loads(self.err)["error"]


@dataclass(frozen=True)
class Cli:
    environment: dict[str, str]

    def __call__(self, *words: str, stdin: bytes | None = None, **more: str) -> Said:
        code, out, err = forking().run(words, self.environment | more, stdin, timeout=110)
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


def account(cli: Cli, name: str, sats: int) -> Cli:
    """A funded account's own command line."""
    key = cli("key", "create", "k", "--account", name, "--open", "--json").json
    own = Cli(
        {n: v for n, v in cli.environment.items() if n != "SANDBOXER_CREDENTIALS"}
        | {"SANDBOXER_PUBLIC_KEY": key["public_key"], "SANDBOXER_SECRET_KEY": key["secret_key"]}
    )
    said = cli("credit", "add", name, str(sats), "--reason", "test", "--id", f"f-{name}", "--json")
    assert said.json == {"id": f"f-{name}", "sats": sats, "is_new": True}
    return own
