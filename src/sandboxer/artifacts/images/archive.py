"""A base image as one file, to be taken to machines that shall not build it: its record and its tree, by tar.

Such a file is as trusted as a recipe: sandboxes start from what is in it. What cannot be an image of this
machine is refused, and nothing of it is left.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import replace
from pathlib import Path

from sandboxer.artifacts.images.build import (
    RECORD,
    Image,
    digest_of,
    find_image,
    hold_images,
    installed,
    load_image,
    publish,
    scratch_in,
)
from sandboxer.kernel.errors import ImageBuildFailed, InvalidRequest

_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
# Owners by number, and what files carry besides: a program's capabilities are an attribute.
_WHOLE = ("--numeric-owner", "--xattrs", "--xattrs-include=*")


def save_image(name: str, images_dir: Path, file: Path) -> Image:
    """Writes the image into `file`, compressed as the name says (.tar, .tar.gz, .tar.zst)."""
    image = find_image(name, images_dir)
    unfinished = file.with_name(f".{os.getpid()}-{file.name}")
    try:
        _tar("-c", "-a", "-f", str(unfinished), "-C", str(image.folder), RECORD, "rootfs")
        unfinished.rename(file)
    finally:
        unfinished.unlink(missing_ok=True)
    return image


def load_image_file(file: Path, images_dir: Path) -> Image:
    """Puts the image of such a file beside those that were built here, under its name. One of the same name
    stays for the disks that lie over it.
    """
    if os.geteuid() != 0:
        raise ImageBuildFailed(why="loading an image needs root: its files belong to many users")
    images_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    with hold_images(images_dir), scratch_in(images_dir, "loaded") as scratch:
        _tar("-x", "-p", "-f", str(file.absolute()), "-C", str(scratch), RECORD, "rootfs")
        image = _checked(file, scratch)
        if (images_dir / image.name / RECORD).is_file():
            present = find_image(image.name, images_dir)
            if present.digest == image.digest:
                return present
        publish(scratch, images_dir / image.name, image.digest)
    return find_image(image.name, images_dir)


def _checked(file: Path, folder: Path) -> Image:
    if any((folder / part).is_symlink() for part in (RECORD, "rootfs")):
        raise InvalidRequest(field=str(file), why="its parts are links")
    image = load_image(folder)
    name = image.recorded_name
    if _NAME.fullmatch(name) is None:
        raise InvalidRequest(field=str(file), why=f"{name!r} cannot be an image's name")
    if image.architecture != os.uname().machine:
        raise InvalidRequest(
            field=str(file), why=f"it is for {image.architecture}, and this machine is {os.uname().machine}"
        )
    if digest_of(image.recipe_digest, installed(image.rootfs)) != image.digest:
        raise InvalidRequest(field=str(file), why="its packages are not those that its record names")
    return replace(image, name=name)


def _tar(*words: str) -> None:
    done = subprocess.run(["tar", *_WHOLE, *words], capture_output=True, text=True, check=False)
    if done.returncode:
        why = " ".join(done.stderr.strip().splitlines()[-2:]) or f"tar ended with {done.returncode}"
        raise ImageBuildFailed(why=why)
