"""deploy/run-job: jobs of the workflow of docs/guides/runners.md, each in a fresh sandbox on real walls."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.support.platforms import ROOT, Up, real_platform, why_not_real

RUNNER = ROOT / "deploy" / "run-job"
GUIDE = ROOT / "docs" / "guides" / "runners.md"
FAILING = """
jobs:
  first:
    runs-on: sandboxer
    steps:
      - run: echo "LEFT=behind" >> "$GITHUB_ENV"; echo here > /workspace/mark
      - run: echo "it is $LEFT"; exit 3
      - run: echo never
      - if: failure()
        run: echo told
      - if: always()
        run: echo swept
  second:
    runs-on: sandboxer
    needs: first
    steps: [{run: echo neither}]
  apart:
    runs-on: sandboxer
    steps: [{run: test ! -e /workspace/mark && echo fresh}]
"""

LYING = """
jobs:
  lying:
    runs-on: sandboxer
    steps:
      - run: |
          mkdir out; echo honest > out/a.txt; echo taken > /workspace/b.txt
          mkdir -p ".$TARGET"; echo taken > ".$TARGET/c.txt"
          printf '#!/bin/sh\\necho ./out/a.txt\\necho ./out/../../b.txt\\necho %s\\n' "$TARGET/c.txt" > find
          mv find /usr/bin/find; chmod 755 /usr/bin/find
        env: {TARGET: "FOLDER"}
      - uses: actions/upload-artifact@v4
        with: {path: "out/* FOLDER"}
"""


@pytest.fixture(scope="module")
def real_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if why := why_not_real():
        pytest.skip(why)
    with real_platform(
        tmp_path_factory.mktemp("run-job") / "state", settings={"SANDBOXER_CHARGING": "false"}
    ) as running:
        yield running


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "answer.py").write_text("print(6 * 7)\n")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.org", "-C", str(folder)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    (folder / "not-committed").write_text("stays here")
    return folder


def run(project: Path, up: Up | None, workflow: str, *words: str) -> subprocess.CompletedProcess[str]:
    (project / "ci.yml").write_text(workflow)
    environment = dict(os.environ) if up is None else up.environment
    asked = [sys.executable, str(RUNNER), "ci.yml", *words]
    return subprocess.run(
        asked, cwd=project, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


def test_the_workflow_of_the_guide_runs_each_job_in_a_sandbox_of_its_own(project: Path, real_up: Up) -> None:
    found = re.search(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert found is not None
    done = run(project, real_up, found[1])
    assert done.returncode == 0, done.stdout + done.stderr
    sandboxes = re.findall(r"in (sbx_\w+)", done.stdout)
    assert len(sandboxes) == len(set(sandboxes)) == 3
    assert "the answer is 42" in done.stdout
    assert (project / "artifacts/test (one)/out/answer-one.txt").read_text() == "42\n"
    assert (project / "artifacts/test (two)/out/answer-two.txt").read_text() == "42\n"
    with Sandboxer(owner_file=real_up.owner_file, url=real_up.url) as owner:
        assert list(owner.list()) == []


def test_a_step_that_fails_ends_its_job_and_those_that_need_it(project: Path, real_up: Up) -> None:
    done = run(project, real_up, FAILING)
    assert done.returncode == 1, done.stdout + done.stderr
    said = done.stdout.splitlines()
    assert {"it is behind", "told", "swept", "fresh"} <= set(said)
    assert not {"never", "neither"} & set(said)
    assert "== second: left out, because what it needs failed" in said


@pytest.mark.parametrize(
    ("job", "field"),
    [
        ("{runs-on: a, steps: [{uses: actions/setup-node@v4}]}", "uses"),
        ("{runs-on: a, steps: [{run: x, if: github.ref == 'a'}]}", "if"),
        ("{runs-on: a, services: {}, steps: []}", "services"),
        ("{runs-on: a, needs: one, steps: []}", "itself"),
        ("{runs-on: a, steps: [{run: 'echo ${{ secrets.TOKEN }}'}]}", "secrets.TOKEN"),
        ("{runs-on: a, steps: [{run: x, timeout-minutes: 3}]}", "timeout-minutes"),
    ],
)
def test_what_it_does_not_know_is_refused_before_anything_runs(project: Path, job: str, field: str) -> None:
    done = run(project, None, f"jobs:\n  one: {job}\n")
    assert done.returncode == 2
    assert field in done.stderr
    assert done.stdout == ""


def test_a_job_that_lies_about_its_files_writes_nowhere_else(project: Path, real_up: Up) -> None:
    """As root inside it may be any program there, `find` too."""
    outside = project.parent / "outside"
    done = run(project, real_up, LYING.replace("FOLDER", str(outside)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert [one.name for one in (project / "artifacts").rglob("*.txt")] == ["a.txt"]
    assert not outside.exists()


def test_a_python_without_the_client_is_told_so(tmp_path: Path) -> None:
    # Isolated, and without the packages of this environment: as a system's Python is.
    bare = [sys.executable, "-I", "-S", str(RUNNER), "ci.yml"]
    done = subprocess.run(bare, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, "Install the client and PyYAML" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr
