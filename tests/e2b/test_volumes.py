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


def test_links_in_a_volume_lead_nowhere_in_the_sandbox_that_has_it(real_up: Up, real_key: str) -> None:
    """By links that an earlier program had left, whoever may use a volume read and wrote root's home."""
    volume = Volume.create("e2b-links")
    with Sandbox.create(
        timeout=120, volume_mounts={"/mnt/data": volume}, allow_internet_access=False
    ) as sandbox:
        sandbox.commands.run(
            "echo secret > /root/secret; cd /mnt/data; mkdir deep; echo inside > deep/file;"
            " ln -s /root out; ln -s /root/secret leaf; ln -s ../../root up; ln -s deep/../../.. winding;"
            " ln -s round round; ln -s deep near; ln -s /mnt/data/deep/file whole; ln -s /mnt/data root",
            user="root",
        )
        for path in ("/leaf", "/out/secret", "/up/secret", "/winding/root/secret", "/round"):
            with pytest.raises(VolumeException, match=r"400.*link"):
                volume.read_file(path)
        for act in (
            lambda: volume.write_file("/out/evil", "x", force=True),
            lambda: volume.write_file("/leaf", "x", force=True),
            lambda: volume.make_dir("/out/evil", force=True),
            lambda: volume.update_metadata("/leaf", mode=0o777),
            lambda: volume.list("/out"),
            lambda: volume.remove("/out/secret"),
        ):
            with pytest.raises(VolumeException, match=r"400.*out of the volume"):
                act()
        seen = sandbox.commands.run("ls /root; stat -c %a /root/secret; cat /root/secret", user="root")
        assert seen.stdout.split() == ["secret", "644", "secret"]
        for path in ("/near/file", "/whole", "/root/near/file"):
            assert volume.read_file(path) == "inside\n"
        volume.write_file("/near/other", "by a link")
        assert sandbox.files.read("/mnt/data/deep/other") == "by a link"
        assert volume.get_info("/leaf").target == "/root/secret"
        volume.remove("/out")
        assert sandbox.commands.run("ls /root", user="root").stdout.split() == ["secret"]
    Volume.destroy(volume.volume_id)
