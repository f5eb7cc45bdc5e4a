"""The wheel, installed where nothing else is: the client alone, and the whole, each with a first sandbox; and
beside a backend of another package.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
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


def settings_of(programs: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(said(programs / "sandboxer", "config", "show", "--json", more={}))
    return found


def first_sandbox(programs: Path, up: Up, *, profile: str = "profile.agent-dev") -> str:
    cli, asked = (
        programs / "sandboxer",
        {"SANDBOXER_CREDENTIALS": str(up.owner_file), "SANDBOXER_URL": up.url},
    )
    made = json.loads(said(cli, "create", "--profile", profile, "--json", more=asked))
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
    settings = settings_of(whole)
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


@pytest.fixture
def shelf(whole: Path, tmp_path: Path) -> Path:
    """A package with a backend of its own, as `backend new` begins it, installed beside the platform."""
    if why := why_not_real():
        pytest.skip(why)
    package = tmp_path / "sandboxer-shelf"
    assert "backend check ext.shelf" in said(
        whole / "sandboxer", "backend", "new", "shelf", "--to", package, more={}
    )
    pip = (whole / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check")
    said(*pip, f"{package}[test]", more={})
    return package


def test_a_backend_of_another_package_is_begun_checked_and_used(whole: Path, shelf: Path) -> None:
    cli = whole / "sandboxer"
    listed = json.loads(said(cli, "backend", "list", "--json", more={}))["items"]
    shelfs = next(one for one in listed if one["id"] == "ext.shelf")
    assert shelfs["experimental"].startswith("it is new")
    assert {**shelfs, "experimental": ""} == {
        "id": "ext.shelf",
        "source": "package sandboxer-shelf",
        "used": False,
        "trouble": None,
        "experimental": "",
    }
    checked = json.loads(said(cli, "backend", "check", "ext.shelf", "--json", more={}))
    assert checked["fine"]
    assert {one["verdict"] for one in checked["checks"]} == {"passed", "deviates", "not_offered"}
    # Its own tests are the same checks.
    tests = (whole / "python", "-m", "pytest", "-q", "-p", "no:cacheprovider", shelf)
    assert " passed" in said(*tests, more={"TMPDIR": "/var/tmp"})
    state = Path(tempfile.mkdtemp(prefix="sandboxer-test-", dir="/var/tmp"))
    profiles = shutil.copytree(settings_of(whole)["profiles_dir"], state / "profiles")
    shutil.copy(shelf / "profile.shelf.yaml", profiles / "shelf.yaml")
    used = {"SANDBOXER_BACKENDS": "ext.namespaces,ext.shelf", "SANDBOXER_PROFILES_DIR": str(profiles)}
    try:
        up, process = start_server(state, free_port(), python=str(whole / "python"), settings=used)
        try:
            assert first_sandbox(whole, up, profile="profile.shelf") == "from inside"
            destroy_everything(up)
        finally:
            process.terminate()
            process.wait(60)
    finally:
        remove_leftovers(state)
        shutil.rmtree(state, ignore_errors=True)
