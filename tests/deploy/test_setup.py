"""What `make setup` relies on: a lock that covers every dependency, and scripts that explain themselves."""

from __future__ import annotations

import os
import pty
import re
import shutil
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOBODY = 65534
SCRIPTS = [
    "apt-install",
    "system-packages",
    "find-python",
    "make-venv",
    "build-guest",
    "build-image",
    "build-wheel",
]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


PINNED = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.+!-]+)( ; [^\\]+)?((?: --hash=sha256:[0-9a-f]{64})+)")


def read_lock(name: str) -> dict[str, str]:
    text = (ROOT / name).read_text().replace(" \\\n   ", "")
    lines = [line for line in text.splitlines() if line[:1] != "#"]
    odd = [line[:80] for line in lines if PINNED.fullmatch(line) is None]
    assert odd == [], "every line of a lock is a version with hashes, without an index or a path"
    return {plain(found[1]): found[2] for line in lines if (found := PINNED.fullmatch(line))}


@pytest.fixture(scope="module")
def locked() -> dict[str, str]:
    return read_lock("requirements-dev.lock")


# Of `sdk.adapters`: each is for a program that its user has already, and is tried beside that, in an
# environment of its own. No set-up of ours installs them, and all of them together cannot be.
BESIDE_OTHERS = {
    *("crewai", "inspect", "jupyter", "langchain", "openai-agents", "pydantic-ai", "smolagents", "swerex")
}


@pytest.fixture(scope="module")
def wanted() -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    offered = project["optional-dependencies"]
    assert offered.keys() >= BESIDE_OTHERS
    extras = [word for name, part in offered.items() if name not in BESIDE_OTHERS for word in part]
    # Without the Python versions that some are for.
    return [word.partition(";")[0].strip() for word in (*project["dependencies"], *extras)]


def test_the_lock_pins_every_dependency(locked: dict[str, str], wanted: list[str]) -> None:
    names = {plain(re.split(r"[\[<>=! ]", word)[0]) for word in wanted}
    assert names - locked.keys() == set()


def test_exact_pins_of_the_project_and_the_lock_agree(locked: dict[str, str], wanted: list[str]) -> None:
    exact = dict(word.split("==") for word in wanted if "==" in word)
    differing = {n: v for n, v in exact.items() if locked[plain(n.split("[")[0])] != v}
    assert differing == {}, "run scripts/lock-requirements after changing pyproject.toml"


def test_what_runs_is_locked_as_it_was_tried(locked: dict[str, str]) -> None:
    running = read_lock("requirements.lock")
    assert {name: locked.get(name) for name in running} == running


def test_what_builds_the_project_is_pinned_and_locked(locked: dict[str, str]) -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert [word.split("==")[0] for word in build] == ["setuptools"]
    assert build[0].split("==")[1] == locked["setuptools"]


def test_what_installs_the_rest_is_locked_as_the_pasted_line_has_it() -> None:
    installing = read_lock("requirements-install.lock")
    assert re.findall(r"\buv==([0-9.]+)", (ROOT / "deploy/install.sh").read_text()) == [installing["uv"]]


def lacking_a_package() -> str:
    """The script on a host that lacks a package: here one that no host has."""
    script = (ROOT / "scripts/system-packages").read_text()
    lacking = script.replace("\nmake|/usr/bin/make|", "\nno-such-thing|/no/such/file|")
    assert lacking != script
    return lacking


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_without_root_the_setup_says_what_to_install_and_goes_on() -> None:
    lacking = lacking_a_package()
    command = ["bash", "-s", "run"]
    done = subprocess.run(
        command,
        input=lacking,
        user=NOBODY,
        group=NOBODY,
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0
    assert "sudo apt-get install no-such-thing" in done.stderr
    assert "needed for building anything" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("apt-get") is None, reason="needs root and apt-get")
def test_at_a_terminal_packages_are_named_and_asked_for(tmp_path: Path) -> None:
    script = tmp_path / "system-packages"
    script.write_text(lacking_a_package())
    ours, theirs = pty.openpty()
    os.write(ours, b"n\n")
    plain = {name: value for name, value in os.environ.items() if name not in ("CI", "YES")}
    done = subprocess.run(
        ["bash", script, "run"], stdin=theirs, stdout=theirs, stderr=theirs, env=plain, check=False
    )
    os.close(theirs)
    # What the other side wrote comes in pieces, and then an error says that it is gone.
    said = b""
    with suppress(OSError):
        while piece := os.read(ours, 4096):
            said += piece
    os.close(ours)
    assert done.returncode == 0
    assert b"no-such-thing: needed for building anything" in said
    assert b"Nothing was changed" in said


@pytest.mark.parametrize("name", SCRIPTS)
def test_setup_scripts_can_be_run_and_read(name: str) -> None:
    script = ROOT / "scripts" / name
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", script], check=True)
