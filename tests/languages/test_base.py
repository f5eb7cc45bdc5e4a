"""A few languages of the `base` image in real sandboxes; `make test-languages` tries all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.work.languages import languages
from tests.languages.proving import prove
from tests.support.platforms import IMAGES, real_platform, why_not_real

TRIED = ("python", "javascript", "c", "perl", "bash")


@pytest.fixture(scope="module")
def real_client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandboxer]:
    if why := why_not_real():
        pytest.skip(why)
    with (
        real_platform(tmp_path_factory.mktemp("languages") / "state", pool_mb=3072) as up,
        Sandboxer(owner_file=up.owner_file, url=up.url, timeout_s=600) as client,
    ):
        yield client


@pytest.mark.parametrize("name", TRIED)
def test_hello_stdin_exit_error_and_loop_go_as_they_should(real_client: Sandboxer, name: str) -> None:
    language = languages()[name]
    assert language.in_base
    assert prove(real_client, language).wrong == {}


@pytest.mark.slow
def test_a_language_of_the_other_image_runs_there(real_client: Sandboxer) -> None:
    if not (IMAGES / "languages" / "image.json").is_file():
        pytest.skip(f"no languages image in {IMAGES} (make image-languages)")
    fortran = languages()["fortran"]
    assert not fortran.in_base
    assert prove(real_client, fortran).wrong == {}
    with real_client.create(profile="profile.languages") as sandbox:
        assert sandbox.info.image == "languages"
        assert sandbox.exec(["zsh", "-c", "print -r -- $ZSH_NAME"]).stdout == "zsh\n"


def test_the_platform_says_what_its_images_have(real_client: Sandboxer) -> None:
    here = {one.name for one in real_client.languages.list(image="base")}
    assert here >= {name for name, language in languages().items() if language.in_base}
