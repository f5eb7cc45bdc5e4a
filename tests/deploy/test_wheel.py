"""The wheel, installed where nothing else is: the client alone, and the whole, each with a first sandbox."""

from __future__ import annotations

import json
import os
import subprocess
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.debian import build_wheel
from tests.support.platforms import (
    Up,
    destroy_everything,
    free_port,
    remove_leftovers,
    start_server,
    why_not_real,
)

# Packages come from the network, and a platform starts from them.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
OF_THE_SERVER = {"fastapi", "sqlalchemy", "uvicorn", "alembic", "cryptography", "web3", "x402", "pyyaml"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(str(wheel), tmp_path_factory.mktemp("light"))


@pytest.fixture(scope="module")
def whole(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(f"{wheel}[server]", tmp_path_factory.mktemp("whole"))


def installed(what: str, folder: Path) -> Path:
    """The programs of a new environment that has this, and nothing of the checkout."""
    venv.create(folder, with_pip=True)
    pip = [folder / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", what]
    subprocess.run(pip, check=True, env=outside({}))
    return folder / "bin"


def outside(more: dict[str, str]) -> dict[str, str]:
    """An environment in which nothing leads to the checkout or to another platform."""
    names = ("PATH", "HOME", "TMPDIR", "LANG", "PIP_INDEX_URL", "PIP_CONFIG_FILE")
    return {name: os.environ[name] for name in names if name in os.environ} | more


def said(*words: str | Path, more: dict[str, str]) -> str:
    done = subprocess.run(words, env=outside(more), cwd="/", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def up(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A platform that is started from the wheel: its guest, its profiles."""
    if why := why_not_real():
        pytest.skip(why)
    state = tmp_path_factory.mktemp("state")
    try:
        running, process = start_server(state, free_port(), python=str(whole / "python"))
        try:
            yield running
            destroy_everything(running)
        finally:
            process.terminate()
            process.wait(60)
    finally:
        remove_leftovers(state)


def first_sandbox(programs: Path, up: Up) -> str:
    cli, asked = (
        programs / "sandboxer",
        {"SANDBOXER_CREDENTIALS": str(up.owner_file), "SANDBOXER_URL": up.url},
    )
    made = json.loads(said(cli, "create", "--profile", "profile.agent-dev", "--json", more=asked))
    assert made["id"] in said(cli, "list", more=asked)
    found = said(cli, "exec", made["id"], "--", "echo", "from", "inside", more=asked).strip()
    said(cli, "delete", made["id"], more=asked)
    return found


def test_the_client_alone_brings_none_of_the_platform(light: Path) -> None:
    found = json.loads(said(light / "python", "-m", "pip", "list", "--format", "json", more={}))
    assert not {package["name"].lower() for package in found} & OF_THE_SERVER


def test_the_client_alone_says_how_to_become_a_platform(light: Path) -> None:
    done = subprocess.run(
        [light / "sandboxer", "up"], env=outside({}), cwd="/", capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip install 'sandboxer[server]'" in " ".join(done.stderr.split())


def test_the_whole_finds_its_guest_its_profiles_and_its_recipes_in_the_package(whole: Path) -> None:
    settings = json.loads(said(whole / "sandboxer", "config", "show", "--json", more={}))
    for name in ("guest_dir", "profiles_dir"):
        assert Path(settings[name]).is_relative_to(whole.parent), settings[name]
        assert Path(settings[name]).is_dir()
    assert os.access(Path(settings["guest_dir"]) / "launcher", os.X_OK)
    known = (
        "from sandboxer.kernel.program import RECIPES; print(*sorted(p.stem for p in RECIPES.glob('*.yaml')))"
    )
    assert {"base", "languages"} <= set(said(whole / "python", "-c", known, more={}).split())


def test_a_first_sandbox_from_the_whole(whole: Path, up: Up) -> None:
    assert first_sandbox(whole, up) == "from inside"


def test_a_first_sandbox_from_the_client_alone(light: Path, up: Up) -> None:
    assert first_sandbox(light, up) == "from inside"
