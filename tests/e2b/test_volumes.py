"""Volumes and their content on real walls, through E2B's own Python SDK."""

from __future__ import annotations

import pytest
from e2b.exceptions import NotFoundException, VolumeException, VolumeNotFoundException

from e2b import AuthenticationException, Sandbox, Volume
from tests.support.e2b import new_api_key
from tests.support.platforms import Up


def test_a_volume_is_made_found_and_removed_once(real_up: Up, real_key: str) -> None:
    volume = Volume.create("e2b-first")
    assert Volume.get_info(volume.volume_id).name == "e2b-first"
    assert volume.volume_id in [one.volume_id for one in Volume.list()]
    with pytest.raises(VolumeException, match="409"):
        Volume.create("e2b-first")
    stranger = new_api_key(real_up, "stranger")
    assert Volume.list(api_key=stranger) == []
    assert Volume.destroy(volume.volume_id, api_key=stranger) is False
    with pytest.raises(VolumeNotFoundException):
        Volume.get_info(volume.volume_id, api_key=stranger)
    assert Volume.destroy(volume.volume_id) is True
    assert Volume.destroy(volume.volume_id) is False


def test_its_content_is_written_read_listed_and_removed(real_up: Up, real_key: str) -> None:
    volume = Volume.create("e2b-content")
    try:
        made = volume.write_file("/a.txt", "text", uid=1000, gid=1000, mode=0o640)
        assert (made.path, made.size, made.uid, made.gid, made.mode) == ("/a.txt", 4, 1000, 1000, 0o640)
        with pytest.raises(VolumeException, match="409"):
            volume.write_file("/a.txt", "other")
        volume.write_file("a.txt", b"other", force=True)
        assert volume.read_file("/a.txt") == "other"
        with pytest.raises(NotFoundException):
            volume.write_file("/no/such/file", "x")
        assert volume.make_dir("/deep/er", force=True).path == "/deep/er"
        volume.write_file("/deep/er/file", "x" * 100_000)
        assert b"".join(volume.read_file("/deep/er/file", format="stream")) == b"x" * 100_000
        assert {one.path for one in volume.list("/")} == {"/a.txt", "/deep"}
        assert {one.path for one in volume.list("/deep", depth=2)} == {"/deep/er", "/deep/er/file"}
        assert volume.update_metadata("/deep", mode=0o700).mode == 0o700
        volume.remove("/deep")
        assert (volume.exists("/deep"), volume.exists("/a.txt")) == (False, True)
        with pytest.raises(NotFoundException):
            volume.read_file("/../../etc/passwd")
        other = Volume.create("e2b-other")
        with pytest.raises(AuthenticationException):
            volume.list("/", token=other.token)
        Volume.destroy(other.volume_id)
        with Sandbox.create(
            timeout=60, volume_mounts={"/data": volume}, allow_internet_access=False
        ) as sandbox:
            assert sandbox.files.read("/data/a.txt") == "other"
            volume.write_file("/while", "attached")
            assert sandbox.commands.run("cat /data/while").stdout == "attached"
        # What was made to reach it is gone.
        assert Sandbox.list().next_items() == []
    finally:
        Volume.destroy(volume.volume_id)
