"""A base image goes into a file and comes out of it the same, on a machine that it fits."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from sandboxer.artifacts.images import find_image, list_images, load_image_file, save_image
from sandboxer.artifacts.images.build import RECORD, digest_of, installed
from sandboxer.kernel.errors import ImageBuildFailed, InvalidRequest, NotFound

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="its files belong to many users")
STATUS = """\
Package: tool
Status: install ok installed
Version: {}
Architecture: all
Maintainer: x
Description: x
"""


def an_image(images: Path, *, version: str = "1.0", **record: object) -> Path:
    """A small one, with what a plain copy would lose: other owners, a setuid program, capabilities, links."""
    folder = images / "small"
    rootfs = folder / "rootfs"
    (rootfs / "var/lib/dpkg").mkdir(parents=True)
    (rootfs / "var/lib/dpkg/status").write_text(STATUS.format(version))
    (rootfs / "su").write_bytes(b"#!")
    os.chown(rootfs / "su", 1234, 4321)
    (rootfs / "su").chmod(0o4755)
    (rootfs / "ping").write_bytes(b"ping")
    os.setxattr(rootfs / "ping", "user.note", b"kept")
    (rootfs / "link").symlink_to("/etc/passwd")
    facts = {
        "name": "small",
        "digest": digest_of("sha256:r", installed(rootfs)),
        "recipe_digest": "sha256:r",
        "built_at": "2026-01-01T00:00:00+00:00",
        "build_seconds": 1.0,
        "size_bytes": 10,
        "distribution": "debian",
        "suite": "bookworm",
        "architecture": os.uname().machine,
        "packages": {"tool": version},
    }
    (folder / RECORD).write_text(json.dumps(facts | record))
    return folder


@pytest.mark.parametrize("suffix", ["tar", "tar.gz", "tar.zst"])
def test_what_is_saved_is_loaded_whole(tmp_path: Path, suffix: str) -> None:
    an_image(tmp_path / "here")
    file = tmp_path / f"small.{suffix}"
    save_image("small", tmp_path / "here", file)
    loaded = load_image_file(file, tmp_path / "there")
    assert (loaded.name, loaded.packages) == ("small", {"tool": "1.0"})
    program = (loaded.rootfs / "su").stat()
    assert (program.st_uid, program.st_gid, program.st_mode & 0o7777) == (1234, 4321, 0o4755)
    assert os.getxattr(loaded.rootfs / "ping", "user.note") == b"kept"
    assert os.readlink(loaded.rootfs / "link") == "/etc/passwd"
    # Once more changes nothing; a newer one takes the name, and the older stays for the disks over it.
    assert load_image_file(file, tmp_path / "there") == loaded
    assert [image.name for image in list_images(tmp_path / "there")] == ["small"]
    an_image(tmp_path / "newer", version="2.0")
    save_image("small", tmp_path / "newer", file)
    assert load_image_file(file, tmp_path / "there").packages == {"tool": "2.0"}
    assert len(list_images(tmp_path / "there")) == 2


@pytest.mark.parametrize(
    ("record", "why"),
    [
        ({"architecture": "pdp11"}, "pdp11"),
        ({"digest": "sha256:0"}, "packages"),
        ({"name": "../../etc"}, "name"),
        ({"name": "small@by-hand"}, "name"),
    ],
)
def test_what_cannot_be_an_image_here_leaves_nothing(
    tmp_path: Path, record: dict[str, object], why: str
) -> None:
    an_image(tmp_path / "here", **record)
    save_image("small", tmp_path / "here", tmp_path / "small.tar")
    with pytest.raises(InvalidRequest, match=why):
        load_image_file(tmp_path / "small.tar", tmp_path / "there")
    assert [path.name for path in (tmp_path / "there").iterdir()] == [".lock"]


def test_an_archive_writes_nowhere_else(tmp_path: Path) -> None:
    """A link in the place of the tree, and files below it, would be written where the link leads."""
    folder = an_image(tmp_path / "here")
    outside = tmp_path / "outside"
    outside.mkdir()
    (folder / "rootfs").rename(folder / "tree")
    (folder / "rootfs").symlink_to(outside)
    file = tmp_path / "bad.tar"
    subprocess.run(["tar", "-c", "-f", file, "-C", folder, RECORD, "rootfs"], check=True)
    subprocess.run(["tar", "-r", "-f", file, "-C", folder, "--transform=s,^tree,rootfs,", "tree"], check=True)
    with contextlib.suppress(ImageBuildFailed):
        assert not load_image_file(file, tmp_path / "there").rootfs.is_symlink()
    assert list(outside.iterdir()) == []


def test_an_archive_whose_tree_is_a_link_is_refused(tmp_path: Path) -> None:
    folder = an_image(tmp_path / "here")
    (folder / "rootfs").rename(tmp_path / "tree")
    (folder / "rootfs").symlink_to(tmp_path / "tree")
    save_image("small", tmp_path / "here", tmp_path / "small.tar")
    with pytest.raises(InvalidRequest, match="links"):
        load_image_file(tmp_path / "small.tar", tmp_path / "there")


def test_a_file_that_is_no_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "page.tar.gz").write_text("<html>not found</html>")
    with pytest.raises(ImageBuildFailed):
        load_image_file(tmp_path / "page.tar.gz", tmp_path / "there")
    with pytest.raises(NotFound):
        find_image("small", tmp_path / "there")
    with pytest.raises(NotFound):
        save_image("small", tmp_path / "there", tmp_path / "small.tar")
    assert not (tmp_path / "small.tar").exists()
