"""`run` of a language that no image here has: it says which image to build, and builds it when it may."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxer.artifacts.images import Image, list_images
from sandboxer.edges.cli import builds
from sandboxer.edges.cli.exits import CommandFailed
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.settings import load_settings
from tests.support.cli import Cli
from tests.support.platforms import IMAGES, Up, why_not_real


@pytest.fixture
def hello_go(tmp_path: Path) -> Path:
    file = tmp_path / "hello.go"
    file.write_text("package main\n")
    return file


def test_a_language_that_is_not_here_is_answered_with_the_command_that_brings_it(
    cli: Cli, hello_go: Path
) -> None:
    said = cli("run", str(hello_go))
    assert said.code == 1
    assert "sandboxer image build systems --state-dir" in " ".join(said.err.split())
    assert "image build base" not in said.err


def test_the_operator_of_the_host_may_have_it_built(
    real_up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if why := why_not_real():
        pytest.skip(why)
    if any(image.name in ("systems", "languages") for image in list_images(IMAGES)):
        pytest.skip(f"Go is in {IMAGES} already")
    built: list[tuple[str, Path]] = []

    def build(name: str, images_dir: Path) -> Image:
        built.append((name, images_dir))
        return list_images(IMAGES)[0]

    monkeypatch.setattr(builds, "build_shown", build)
    monkeypatch.setenv("SANDBOXER_IMAGES_DIR", str(IMAGES))
    with Sandboxer(owner_file=real_up.owner_file, url=real_up.url) as platform:

        def ensure(word: str, *, may_build: bool) -> None:
            builds.ensure_language(platform, word, "", may_build=may_build, state_dir=real_up.state_dir)

        ensure("python", may_build=False)
        # No terminal, so nobody can be asked.
        with pytest.raises(CommandFailed) as refused:
            ensure("go", may_build=False)
        assert "--build" in refused.value.remedy
        assert built == []
        ensure("go", may_build=True)
        assert built == [("systems", IMAGES)]
        # Not the folder whose images the platform shows: what is built there would not be found.
        monkeypatch.setenv("SANDBOXER_IMAGES_DIR", str(tmp_path))
        with pytest.raises(CommandFailed) as elsewhere:
            ensure("go", may_build=True)
        assert str(load_settings(state_dir=real_up.state_dir).images_dir) in elsewhere.value.remedy
