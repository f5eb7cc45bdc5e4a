"""Every language and shell of each tier in real sandboxes, from whichever image on this host has it.

A tier that is not built is left out with the reason; `make test-tiers TIERS="shells jvm"` builds those first
(`TIERS=all`: every one). Images: SANDBOXER_TEST_IMAGES, or those of the default state folder.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from sandboxer.artifacts.images import build_image
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.work.languages import ALL, TIERS, languages
from tests.languages.proving import prove_all
from tests.support.platforms import IMAGES, real_platform, why_not_real

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
WANTED = os.environ.get("SANDBOXER_TEST_TIERS", "").split()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandboxer]:
    if why := why_not_real():
        pytest.skip(why)
    with (
        real_platform(tmp_path_factory.mktemp("tiers") / "state", pool_mb=6144) as up,
        Sandboxer(owner_file=up.owner_file, url=up.url, timeout_s=600) as opened,
    ):
        yield opened


def _is_built(image: str) -> bool:
    return (IMAGES / image / "image.json").is_file()


@pytest.mark.parametrize("tier", ["base", *TIERS])
def test_every_language_of_a_tier_passes_its_five_programs(tier: str, client: Sandboxer) -> None:
    if not _is_built(tier) and not _is_built(ALL):
        if tier not in WANTED and "all" not in WANTED:
            pytest.skip(f'no image {tier} in {IMAGES}: make test-tiers TIERS="{tier}" builds it')
        build_image(tier, IMAGES)
    mine = [one for one in languages().values() if one.image == tier]
    wrong = {one.language.name: one.wrong for one in prove_all(client, mine) if one.wrong}
    assert wrong == {}
