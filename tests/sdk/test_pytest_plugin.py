"""`pytest --sandboxer` on real walls: what runs where, what comes back, and how it ends."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

from sandboxer.sdk import pytest_plugin
from sandboxer.sdk.sync.client import Sandboxer
from tests.support.platforms import Up, real_platform, why_not_real

pytest_plugins = ["pytester"]
WHERE = """
import os, pathlib, sys
def test_it_runs_inside(tmp_path):
    assert os.path.exists("/run/sandboxer") and "/workspace/project" in __file__
    pathlib.Path("build").mkdir(exist_ok=True)
    pathlib.Path("build/report.html").write_text("made inside")
    pathlib.Path("build/left.txt").write_text("not asked for")
    pathlib.Path("kept.txt").write_text("changed inside")
def test_it_fails():
    assert 6 * 7 == 41
"""

LYING = """
import pathlib
def test_it_lies_about_what_it_made():
    pathlib.Path("build").mkdir()
    pathlib.Path("build/said.txt").write_text("made inside")
    names = ["build/said.txt", "build/../conftest.py", "build/../.git/config", ".git/hooks/said.txt"]
    names.append("linked/x.txt")
    script = "#!/bin/sh\\n" + "".join(f"echo ./{name}\\n" for name in names)
    for name in names[1:]:
        made = pathlib.Path(name)
        made.parent.mkdir(parents=True, exist_ok=True)
        made.write_text("made inside")
    pathlib.Path("/usr/bin/find").unlink()
    pathlib.Path("/usr/bin/find").write_text(script)
    pathlib.Path("/usr/bin/find").chmod(0o755)
"""


@pytest.fixture(scope="module")
def real_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    if why := why_not_real():
        pytest.skip(why)
    state = tmp_path_factory.mktemp("pytest-plugin") / "state"
    with real_platform(state, settings={"SANDBOXER_CHARGING": "false"}) as running:
        yield running


@pytest.fixture
def run(real_up: Up, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    for name in [name for name in os.environ if name.startswith("SANDBOXER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SANDBOXER_URL", real_up.url)
    monkeypatch.setenv("SANDBOXER_CREDENTIALS", str(real_up.owner_file))
    return pytester


def asked(run: pytest.Pytester, *words: str) -> pytest.RunResult:
    return run.runpytest_subprocess("--sandboxer", *words)


def test_tests_run_inside_and_what_is_asked_for_comes_back(run: pytest.Pytester, real_up: Up) -> None:
    run.makepyfile(test_where=WHERE)
    kept = run.path / "kept.txt"
    kept.write_text("as it was")
    done = asked(
        run, "--sandboxer-artifacts", "build/*.html", "--sandboxer-artifacts=k*.txt", "--junitxml=r.xml"
    )
    assert done.ret == pytest.ExitCode.TESTS_FAILED
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*assert (6 * 7) == 41*"])
    assert (run.path / "build/report.html").read_text() == "made inside"
    assert 'tests="2"' in (run.path / "r.xml").read_text()
    assert not (run.path / "build/left.txt").exists()
    assert kept.read_text() == "as it was"
    with Sandboxer(owner_file=real_up.owner_file, url=real_up.url) as owner:
        assert list(owner.list()) == []


def test_what_was_sent_is_not_written_over_whatever_is_said_inside(run: pytest.Pytester) -> None:
    run.makepyfile(test_lying=LYING)
    run.makeconftest("# as it was")
    (run.path / "sources").mkdir()
    (run.path / "sources/x.txt").write_text("as it was")
    run.run("git", "init", "-q")
    (run.path / "linked").symlink_to("sources")
    config = (run.path / ".git/config").read_text()
    done = asked(run, "--sandboxer-artifacts", "build/*", "--sandboxer-artifacts", "*.txt")
    done.assert_outcomes(passed=1)
    assert (run.path / "build/said.txt").read_text() == "made inside"
    assert (run.path / "conftest.py").read_text() == "# as it was"
    assert (run.path / "sources/x.txt").read_text() == "as it was"
    assert (run.path / ".git/config").read_text() == config
    assert not (run.path / ".git/hooks/said.txt").exists()


def test_arguments_choose_tests_and_paths_are_those_of_inside(run: pytest.Pytester) -> None:
    run.makepyfile(test_where=WHERE)
    done = asked(run, str(run.path / "test_where.py"), "-k", "inside")
    assert done.ret == pytest.ExitCode.OK
    done.assert_outcomes(passed=1, deselected=1)


@pytest.mark.slow
def test_what_is_run_first_runs_in_the_project_and_may_fail(run: pytest.Pytester) -> None:
    run.makepyfile(test_made="import made\ndef test_it(): assert made.X == 1\n")
    done = asked(run, "--sandboxer-setup", "echo X = 1 > made.py", "-q")
    assert done.ret == pytest.ExitCode.OK
    done = asked(run, "--sandboxer-setup=echo broken; exit 3")
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["*broken*"])


@pytest.mark.slow
def test_what_git_ignores_stays_here(run: pytest.Pytester) -> None:
    run.run("git", "init", "-q")
    (run.path / ".gitignore").write_text("secret.txt\n")
    (run.path / "secret.txt").write_text("x")
    run.makepyfile("import os\ndef test_it(): assert not os.path.exists('secret.txt')\n")
    assert asked(run, "-q").ret == pytest.ExitCode.OK


def test_a_platform_that_is_not_there_is_said_in_a_line(
    run: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SANDBOXER_URL", "http://127.0.0.1:9")
    done = asked(run)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    done.stderr.fnmatch_lines(["ERROR: --sandboxer: *"])


def test_without_the_option_nothing_is_asked_of_anybody(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(): pass\n")
    done = pytester.runpytest_subprocess()
    done.assert_outcomes(passed=1)


def test_it_is_found_where_the_client_is_installed() -> None:
    found = {one.name: one.value for one in metadata.entry_points(group="pytest11")}
    assert found["sandboxer"] == pytest_plugin.__name__
    assert len(Path(pytest_plugin.__file__).read_text().splitlines()) <= 150
