"""Files on our side: whole or absent, and never written through a link."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandboxer.sdk.bodies import appearing


def test_a_file_appears_when_it_is_whole_and_leaves_nothing_otherwise(tmp_path: Path) -> None:
    with appearing(tmp_path / "a") as file:
        file.write(b"1")
        assert not (tmp_path / "a").exists()
    with pytest.raises(RuntimeError), appearing(tmp_path / "b") as file:
        raise RuntimeError
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"1"


def test_links_that_wait_in_its_place_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"mine")
    for name in ("a", ".a.part"):
        (tmp_path / name).symlink_to("precious")
    with appearing(tmp_path / "a") as file:
        file.write(b"theirs")
    assert (tmp_path / "precious").read_bytes() == b"mine"
    assert (tmp_path / "a").read_bytes() == b"theirs"
