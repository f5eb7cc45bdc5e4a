"""What a project has besides its code: a site of its documents, a bill of materials, one version, a gate."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
import yaml

from sandboxer import __version__

ROOT = Path(__file__).resolve().parents[2]
LOCKED = re.compile(r"^(?P<name>[A-Za-z0-9_.-]+)==(?P<version>[^ ;]+)", re.MULTILINE)


def program(name: str) -> str:
    return str(Path(sys.executable).with_name(name))


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What the site is made of, in a folder where it can be changed."""
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copy(ROOT / "mkdocs.yml", tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    (tmp_path / "scripts").mkdir()
    shutil.copy(ROOT / "scripts" / "site_parts.py", tmp_path / "scripts")
    return tmp_path


def build_site(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("mkdocs"), "build", "--strict"], cwd=folder, capture_output=True, text=True, check=False
    )


def test_the_documents_become_a_site_with_every_page_and_a_search(checkout: Path) -> None:
    done = build_site(checkout)
    assert done.returncode == 0, done.stderr
    site = checkout / "build" / "site"
    for page in (checkout / "docs").rglob("*.md"):
        shown = page.relative_to(checkout / "docs").with_suffix(".html")
        shown = shown.with_name("index.html") if page.name == "README.md" else shown
        assert (site / shown).is_file(), shown
    found = json.loads((site / "search" / "search_index.json").read_text())["docs"]
    assert any("freeze" in one["text"] for one in found)
    assert "Runs a command to the end" in (site / "reference" / "python" / "sandbox.html").read_text()


def test_a_site_with_a_broken_link_or_a_page_that_nobody_names_is_not_built(checkout: Path) -> None:
    page = checkout / "docs" / "guides" / "ssh.md"
    page.write_text(page.read_text() + "\nSee [this](nowhere.md).\n")
    (checkout / "docs" / "guides" / "unnamed.md").write_text("# Nobody names this page\n")
    done = build_site(checkout)
    assert done.returncode != 0
    assert "nowhere.md" in done.stderr
    assert "unnamed.md" in done.stderr


def test_the_bill_of_materials_names_every_locked_package_with_its_version(tmp_path: Path) -> None:
    lock, file = ROOT / "requirements.lock", tmp_path / "sbom.json"
    subprocess.run(
        [program("cyclonedx-py"), "requirements", str(lock), "--of", "JSON", "-o", str(file)],
        check=True,
        capture_output=True,
    )
    bill = json.loads(file.read_text())
    assert bill["bomFormat"] == "CycloneDX"
    named = {(one["name"].lower(), one["version"]) for one in bill["components"]}
    assert named == {(found["name"].lower(), found["version"]) for found in LOCKED.finditer(lock.read_text())}


def test_the_version_has_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert metadata.version("sandboxer") == __version__
    assert f"## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_the_license_is_told_in_the_package() -> None:
    reported = metadata.metadata("sandboxer")
    assert reported["License-Expression"] == "Apache-2.0"
    assert reported.get_all("License-File") == ["LICENSE"]
    assert "Apache License" in (ROOT / "LICENSE").read_text()


def test_the_workflow_runs_the_gate_and_nothing_of_its_own() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "gate.yaml").read_text())
    run = [step["run"] for step in workflow["jobs"]["gate"]["steps"] if "run" in step]
    assert [line.split()[-1] for line in run] == [".ci/run"]


def test_what_runs_before_a_commit_is_understood_and_there() -> None:
    subprocess.run([program("pre-commit"), "validate-config"], cwd=ROOT, check=True, capture_output=True)
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert all(Path(program(Path(hook["entry"].split()[0]).name)).is_file() for hook in hooks)
