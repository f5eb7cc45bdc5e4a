"""A release is made by one command, can be made again to the same bytes, and shows when it was changed."""

from __future__ import annotations

import gzip
import io
import os
import runpy
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from sandboxer import __version__

ROOT = Path(__file__).parents[2]
VENV = {"VENV": str(Path(sys.executable).parents[1])}


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "release"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is committed; a release has nothing else."""
    folder = tmp_path_factory.mktemp("clone") / "tree"
    subprocess.run(["git", "clone", "-q", ROOT, folder], check=True)
    return folder


def release(clone: Path, *words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["scripts/release", *words], cwd=clone, env=os.environ | VENV, capture_output=True, text=True
    )


def test_a_key_inside_the_tree_or_none_is_refused(clone: Path, key: Path) -> None:
    assert "Name the SSH key" in release(clone).stderr
    inside = clone / "key"
    inside.write_bytes(key.read_bytes())
    done = release(clone, inside)
    inside.unlink()
    assert done.returncode == 2
    assert "inside the tree" in done.stderr


def test_what_is_not_committed_is_not_released(clone: Path, key: Path) -> None:
    (clone / "left-over").touch()
    done = release(clone, key)
    (clone / "left-over").unlink()
    assert done.returncode == 1
    assert "not committed" in done.stderr


def test_a_source_distribution_does_not_say_when_by_whom_or_in_which_order_it_was_packed() -> None:
    repacked = runpy.run_path(str(ROOT / "scripts" / "repack-sdist"))["repacked"]

    def packed(names: list[str], uid: int, moment: int) -> bytes:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name in names:
                member = tarfile.TarInfo(name)
                member.size, member.uid, member.mtime, member.uname = 1, uid, moment, f"user{uid}"
                tar.addfile(member, io.BytesIO(b"x"))
        return out.getvalue()

    one, other = (repacked(packed(*how), 1000) for how in ((["a", "b"], 0, 5), (["b", "a"], 1000, 99)))
    assert one == other
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(one))) as tar:
        assert tar.getnames() == ["a", "b"]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_release_is_built_signed_installed_and_shows_a_change(
    clone: Path, key: Path, tmp_path: Path
) -> None:
    done = release(clone, key)
    assert done.returncode == 0, done.stdout + done.stderr
    made = clone / "dist" / "release"
    stem = f"sandboxer-{__version__}"
    files = {f"{stem}-py3-none-any.whl", f"{stem}.tar.gz", f"{stem}.cdx.json", "SHA256SUMS", "SHA256SUMS.sig"}
    assert {path.name for path in made.iterdir()} == files

    signers = tmp_path / "signers"
    signers.write_text("sandboxer-release " + Path(f"{key}.pub").read_text())
    assert release(clone, "--check", made, signers).returncode == 0
    stranger = tmp_path / "stranger"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", stranger], check=True)
    others = tmp_path / "others"
    others.write_text("sandboxer-release " + Path(f"{stranger}.pub").read_text())
    assert release(clone, "--check", made, others).returncode != 0
    with (made / f"{stem}.tar.gz").open("ab") as file:
        file.write(b"!")
    assert release(clone, "--check", made, signers).returncode != 0
