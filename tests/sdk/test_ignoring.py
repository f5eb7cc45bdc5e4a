"""What `.dockerignore` names does not leave this machine."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from sandboxer.sdk.bodies import packed
from sandboxer.sdk.ignoring import is_ignored, patterns_in

FILES = ("Dockerfile", "app.py", "a.log", "deep/b.log", "deep/er/c.log", "node_modules/x/y.js", "keep/d.log")


def names(folder: Path, dockerfile: str = "Dockerfile") -> set[str]:
    data = b"".join(packed(folder, dockerfile).open())
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return {one.name.removeprefix("./") for one in tar.getmembers() if one.isfile()}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def test_without_such_a_file_all_is_sent(folder: Path) -> None:
    assert names(folder) == set(FILES)


def test_what_it_names_stays_here_but_for_exceptions(folder: Path) -> None:
    (folder / ".dockerignore").write_text("# a comment\n\n/node_modules/\n**/*.log\n!keep/*.log\n")
    assert names(folder) == {".dockerignore", "Dockerfile", "app.py", "keep/d.log"}


def test_what_says_how_to_build_is_sent_whatever_is_ignored(folder: Path) -> None:
    (folder / ".dockerignore").write_text("*")
    assert names(folder) == {".dockerignore", "Dockerfile"}
    (folder / "deploy").mkdir()
    (folder / "deploy/Dockerfile").touch()
    assert names(folder, "deploy/Dockerfile") == {".dockerignore", "deploy/Dockerfile"}
    (folder / "deploy/Dockerfile.dockerignore").write_text("*.log")
    assert "app.py" in names(folder, "deploy/Dockerfile")


@pytest.mark.parametrize(
    ("pattern", "path", "is_out"),
    [
        ("*.log", "a.log", True),
        ("*.log", "deep/a.log", False),
        ("**/*.log", "a.log", True),
        ("**/*.log", "deep/er/a.log", True),
        ("deep", "deep/er/a.log", True),
        ("deep/*", "deep/er/a.log", True),
        ("deep/**/a.log", "deep/a.log", True),
        ("?.log", "ab.log", False),
        ("[ab].log", "b.log", True),
        ("./x/../app.py", "app.py", True),
        ("a\\*", "a*", True),
        ("a\\*", "ab", False),
        ("a.b", "axb", False),
        ("*\n!app.py", "app.py", False),
        ("!app.py\n*", "app.py", True),
    ],
)
def test_patterns_mean_what_they_mean_to_the_builder(pattern: str, path: str, is_out: bool) -> None:
    assert is_ignored(path, patterns_in(pattern)) is is_out
