"""Builds with the real mmdebstrap: a failed or interrupted one leaves nothing that looks like an image."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from sandboxer.artifacts.images import Progress, build_image, find_image, list_images
from sandboxer.kernel.errors import Broken, ImageBuildFailed, NotFound

TINY = """\
name: tiny
distributions:
  debian: {suite: bookworm, components: [main]}
  ubuntu: {suite: host, components: [main, universe]}
packages: [%s]
user: {name: user, uid: 1000}
"""
needs_mmdebstrap = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("mmdebstrap") is None, reason="needs root and mmdebstrap"
)


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes"
    folder.mkdir()
    (folder / "tiny.yaml").write_text(TINY % "hostname")
    (folder / "slip.yaml").write_text(TINY.replace("tiny", "slip") % "no-such-package-here")
    return folder


def visible(images: Path) -> list[str]:
    return sorted(p.name for p in images.iterdir() if p.name != ".lock")


def give_up(_: Progress) -> None:
    raise InterruptedError


@pytest.mark.slow
@needs_mmdebstrap
def test_an_unknown_package_is_named_and_nothing_stays(tmp_path: Path, recipes: Path) -> None:
    images = tmp_path / "images"
    with pytest.raises(ImageBuildFailed) as caught:
        build_image("slip", images, recipes_dir=recipes)
    if "no network" in str(caught.value):
        pytest.skip(str(caught.value))
    assert "no package no-such-package-here" in str(caught.value)
    assert visible(images) == []


@needs_mmdebstrap
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build_leaves_no_image(tmp_path: Path, recipes: Path, number: signal.Signals) -> None:
    images = tmp_path / "images"
    script = (
        "import sys; from pathlib import Path; from sandboxer.artifacts.images import build_image\n"
        "build_image('tiny', Path(sys.argv[1]), lambda p: print(p.phase, flush=True), "
        "recipes_dir=Path(sys.argv[2]))\n"
    )
    command = [sys.executable, "-c", script, str(images), str(recipes)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as build:
        assert build.stdout is not None
        for phase in build.stdout:
            if phase.strip() != "starting":
                break
        build.send_signal(number)
        build.stdout.read()
    assert build.returncode != 0
    assert list_images(images) == []
    with pytest.raises(NotFound):
        find_image("tiny", images)
    _until_nobody_works_in(images)
    # What a killed build left is swept by the next one, whatever becomes of that.
    with pytest.raises(InterruptedError):
        build_image("tiny", images, give_up, recipes_dir=recipes)
    assert visible(images) == []


@needs_mmdebstrap
def test_only_one_build_runs_at_a_time(tmp_path: Path, recipes: Path) -> None:
    images = tmp_path / "images"

    def second_build(_: Progress) -> None:
        with pytest.raises(ImageBuildFailed, match="another build is under way"):
            build_image("tiny", images, recipes_dir=recipes)
        raise InterruptedError

    with pytest.raises(InterruptedError):
        build_image("tiny", images, second_build, recipes_dir=recipes)
    assert visible(images) == []


@pytest.mark.slow
@needs_mmdebstrap
def test_a_rebuild_keeps_the_old_tree_beside_the_new(tmp_path: Path, recipes: Path) -> None:
    images = tmp_path / "images"
    steps: list[Progress] = []
    before = os.umask(0o077)  # an operator's umask must not show in the tree
    try:
        first = build_image("tiny", images, steps.append, recipes_dir=recipes)
    finally:
        os.umask(before)
    assert (first.rootfs / "etc").stat().st_mode & 0o777 == 0o755
    assert (first.rootfs / "etc/apt/sources.list").stat().st_mode & 0o777 == 0o644
    assert steps[-1] == Progress("ready", 1.0)
    assert build_image("tiny", images, recipes_dir=recipes) == first
    (recipes / "tiny.yaml").write_text(TINY % "hostname, less")
    second = build_image("tiny", images, recipes_dir=recipes, rebuild=True)
    assert second.digest != first.digest
    assert "less" in second.packages
    trees = [f"tiny@{image.digest.removeprefix('sha256:')[:12]}" for image in (first, second)]
    assert visible(images) == sorted(["tiny", *trees])
    assert os.readlink(images / "tiny") == trees[1]
    assert [image.name for image in list_images(images)] == ["tiny", trees[0]]


def test_a_user_without_root_is_told_so(
    tmp_path: Path, recipes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(ImageBuildFailed, match="needs root"):
        build_image("tiny", tmp_path / "images", recipes_dir=recipes)


def test_a_full_disk_is_told_before_anything_is_fetched(
    tmp_path: Path, recipes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("needs root and mmdebstrap")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**12, 10**12, 10**8))  # type: ignore[attr-defined]
    with pytest.raises(ImageBuildFailed, match=r"0\.1 GB free"):
        build_image("tiny", tmp_path / "images", recipes_dir=recipes)


def test_a_damaged_record_is_reported_not_guessed(tmp_path: Path) -> None:
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "image.json").write_text("{")
    with pytest.raises(Broken, match="not an image record"):
        find_image("odd", tmp_path)


def _until_nobody_works_in(images: Path) -> None:
    deadline = time.monotonic() + 60
    while subprocess.run(["flock", "-n", images / ".lock", "true"], check=False).returncode != 0:
        assert time.monotonic() < deadline, "mmdebstrap outlived its build"
        time.sleep(0.1)
