"""The catalog lists the images on this host: `<name>@<digest>/` is a permanent tree, `<name>` a link to the
newest of them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

from sandboxer.kernel.errors import Broken, NotFound

RECORD = "image.json"


@dataclass(frozen=True)
class Image:
    name: str
    digest: str  # of the recipe, its overlay, and every package with its version
    recipe_digest: str  # of the recipe and its overlay: tells whether the recipe changed since
    built_at: datetime
    build_seconds: float
    size_bytes: int
    distribution: str
    suite: str
    architecture: str
    folder: Path
    packages: Mapping[str, str] = field(repr=False)

    @property
    def rootfs(self) -> Path:
        return self.folder / "rootfs"

    def to_json(self) -> str:
        facts = asdict(self) | {"built_at": self.built_at.isoformat(), "packages": dict(self.packages)}
        del facts["folder"]  # an image may be moved
        return json.dumps(facts, indent=1) + "\n"


def find_image(name: str, images_dir: Path) -> Image:
    """Returns the image of that name. Raises NotFound, which says how to get it."""
    if "/" in name or name.startswith(".") or not (images_dir / name / RECORD).is_file():
        raise NotFound(what="image", id=f"{name} (build it with `sandboxer image build {name}`)")
    return _load(images_dir / name)


def list_images(images_dir: Path) -> list[Image]:
    """Returns images by name, then, as `name@digest`, older trees that disks of sandboxes may
    still lie over.
    """
    if not images_dir.is_dir():
        return []
    folders = sorted(p for p in images_dir.iterdir() if not p.name.startswith(".") and (p / RECORD).is_file())
    linked = {os.readlink(folder) for folder in folders if folder.is_symlink()}
    images = [_load(folder) for folder in folders if folder.name not in linked]
    return sorted(images, key=lambda image: ("@" in image.name, image.name))


def _load(folder: Path) -> Image:
    try:
        facts = json.loads((folder / RECORD).read_text()) | {"name": folder.name}
        built_at = datetime.fromisoformat(facts.pop("built_at"))
        return Image(**facts, built_at=built_at, folder=folder)
    except (ValueError, TypeError, KeyError) as error:
        raise Broken(why=f"{folder / RECORD} is not an image record: {error}") from error
