"""A platform that builds and fetches images: on real walls, with a base image of a few files, and behind a
cable the internet of `public_world`."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sandboxer.artifacts.images import Image
from sandboxer.settings import Settings
from tests.access.egress.world import ADDRESS, Names
from tests.artifacts.engines import BUSYBOX
from tests.support.archives import make_tree
from tests.support.egress_inside import names, world  # noqa: F401
from tests.support.http.real import GUEST, IMAGES, on_real_walls, why_not
from tests.support.http.served import Served
from tests.support.http.signed import ServerEvent


def tiny_images(folder: Path) -> Path:
    """The builder and the base image of this host, and an image that is made in a moment."""
    make_tree(folder / "tiny" / "rootfs")
    about = Image(
        name="tiny",
        digest="sha256:" + "5" * 64,
        recipe_digest="",
        built_at=datetime.now(UTC),
        build_seconds=0.0,
        size_bytes=2_000_000,
        distribution="none",
        suite="none",
        architecture=os.uname().machine,
        folder=folder / "tiny",
        packages={},
        recorded_name="tiny",
    )
    (folder / "tiny" / "image.json").write_text(about.to_json())
    for name in ("builder", "base"):
        tree = os.readlink(IMAGES / name)
        (folder / tree).symlink_to(IMAGES / tree)
        (folder / name).symlink_to(tree)
    return folder


@pytest.fixture
async def builds(
    world: None, names: Names, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[Served]:
    """With small limits, unless a test gives settings of its own."""
    why = why_not() or ("" if os.path.exists(BUSYBOX) else "busybox-static is not installed")
    if not (IMAGES / "builder" / "image.json").is_file():
        why = why or f"no builder in {IMAGES} (make image-builder)"
    if why:
        pytest.skip(why)
    names.set("registry.example.com", ADDRESS)
    state = tmp_path / "state"
    limits = {"pool_size_mb": 1024, "image_upload_mb": 16, "build_disk_mb": 384, "build_cache_mb": 256}
    limits |= getattr(request, "param", {})
    settings = Settings(
        state_dir=state,
        host="127.0.0.1",
        port=0,
        images_dir=tiny_images(tmp_path / "images"),
        guest_dir=GUEST,
        charging=False,
        **limits,
    )
    async with on_real_walls(settings, image="tiny") as running:
        yield running


def context(dockerfile: str, files: Mapping[str, bytes] = {}, links: Mapping[str, str] = {}) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as tar:
        for name, content in {"Dockerfile": dockerfile.encode(), **files}.items():
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(content), 0o755
            tar.addfile(info, io.BytesIO(content))
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
    return held.getvalue()


async def making(served: Served, target: str, **words: Any) -> tuple[str, Mapping[str, Any]]:
    """What a builder said, and the image or the problem."""
    said: list[str] = []
    end: ServerEvent | None = None
    async for event in served.client.events("POST", target, **words):
        if event.name == "output":
            said.append(event.data["text"])
        else:
            end = event
    assert end is not None
    return "\n".join(said), end.data


async def build(served: Served, sent: bytes, **query: str) -> tuple[str, Mapping[str, Any]]:
    asked = "&".join(f"{name}={value}" for name, value in {"name": "built", **query}.items())
    return await making(served, f"/v1/images/build?{asked}", content=sent)


async def living(served: Served) -> list[str]:
    found = (await served.client.get("/v1/sandboxes?limit=500")).json()["sandboxes"]
    return [one["id"] for one in found if one["state"] != "destroyed"]
