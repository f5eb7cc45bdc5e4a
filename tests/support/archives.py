"""Archives as images are imported from."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sandboxer.artifacts.images.published.records import PublishedImage, Visibility
from sandboxer.artifacts.records import State
from sandboxer.backends.contract import Resources
from sandboxer.settings import Settings
from tests.artifacts.engines import BUSYBOX
from tests.support.http.real import GUEST, on_real_walls, why_not
from tests.support.http.served import Served

Entry = tuple[tarfile.TarInfo, bytes]


def file(path: str, content: bytes = b"x", **facts: object) -> Entry:
    info = tarfile.TarInfo(path)
    info.size = len(content)
    for name, value in facts.items():
        setattr(info, name, value)
    return info, content


def packed(*entries: Entry) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in entries:
            tar.addfile(info, io.BytesIO(content) if content else None)
    return held.getvalue()


def docker_archive(
    layer: bytes, *, diff_id: str | None = None, raw: bytes | None = None, **config: object
) -> bytes:
    digest = diff_id or hashlib.sha256(layer).hexdigest()
    about = {
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        "config": {"Env": ["A=b"], **config},
    }
    manifest = [{"Config": "c.json", "RepoTags": [], "Layers": ["l.tar"]}]
    return packed(
        file("manifest.json", json.dumps(manifest).encode()),
        file("c.json", json.dumps(about).encode()),
        file("l.tar", layer if raw is None else raw),
    )


@pytest.fixture
async def real(tmp_path: Path) -> AsyncIterator[Served]:
    """With a base image of a few files: a large one is copied for a minute."""
    if why := why_not() or (
        "" if os.path.exists(BUSYBOX) else "busybox-static is not installed: scripts/system-packages ci"
    ):
        pytest.skip(why)
    make_tree(tmp_path / "images" / "tiny" / "rootfs")
    state = tmp_path / "state"
    settings = Settings(
        state_dir=state,
        host="127.0.0.1",
        port=0,
        images_dir=tmp_path / "images",
        guest_dir=GUEST,
        pool_size_mb=800,
        charging=False,
    )
    async with on_real_walls(settings, image="tiny") as running:
        yield running


def make_tree(root: Path) -> None:
    for folder in (
        "bin",
        "etc",
        "tmp",
        "root",
        "dev",
        "proc",
        "sys",
        "run",
        "usr/share/doc/sub",
        "usr/share/man/man1",
    ):
        (root / folder).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    for name in subprocess.run([BUSYBOX, "--list"], capture_output=True, text=True).stdout.split():
        if name != "busybox":
            (root / "bin" / name).symlink_to("busybox")
    for name in ("etc/version", "usr/share/doc/readme", "usr/share/doc/sub/kept", "usr/share/doc/sub/less"):
        (root / name).write_text("12\n")


NOW = datetime(2026, 11, 16, tzinfo=UTC)


IMAGE = PublishedImage(
    id="img_a",
    version=0,
    account="alice",
    created_by="k",
    name="tool",
    description="",
    visibility=Visibility.PRIVATE,
    state=State.KEPT,
    reason="published",
    source="snp_x",
    backend="ext.namespaces",
    base="base@1",
    profile="p",
    resources=Resources(vcpus=1, memory_mb=1, disk_mb=1, pids=1),
    created_at=NOW,
    state_since=NOW,
)
