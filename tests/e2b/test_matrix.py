"""Versions of E2B's clients, installed in folders of their own: each does what the guide says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from testchains.stacks.simnet import why_not
from tests.e2b.matrix import BEGIN, END, GUIDE, VERSIONS, table, try_all
from tests.support.caddy import why_no_caddy
from tests.support.platforms import why_not_real


@pytest.mark.slow
def test_every_version_does_what_the_guide_says(tmp_path: Path) -> None:
    if why := why_not_real() or why_no_caddy() or why_not():
        pytest.skip(why)
    seen = dict(try_all(tmp_path, VERSIONS))
    wrong = {title: {k: v for k, v in found.items() if isinstance(v, str)} for title, found in seen.items()}
    assert table(seen) == GUIDE.read_text().partition(BEGIN)[2].partition(END)[0], wrong
