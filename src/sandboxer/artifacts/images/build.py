"""Builds an image with mmdebstrap. An interrupted build leaves nothing that looks like an image."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from sandboxer.artifacts.images.bootstrap import Progress, Report, bootstrap
from sandboxer.artifacts.images.catalog import RECORD, Image, find_image
from sandboxer.artifacts.images.finish import finish, install_from_pypi
from sandboxer.artifacts.images.mirrors import (
    Mirrors,
    Source,
    choose_mirrors,
    parse_deb822,
    parse_list,
    parse_os_release,
)
from sandboxer.artifacts.images.recipe import Recipe, extend, parse_recipe
from sandboxer.kernel.errors import ImageBuildFailed, InvalidRequest, NotFound
from sandboxer.kernel.shipped import RECIPES

_NEEDED_BYTES = 1_500_000_000  # packages, the tree, and room to work
_BYTES_EACH = 70_000_000  # measured: what one asked-for package brings with it, at most, on average


def _silent(_: Progress) -> None:
    """Reports nothing, for callers that show no progress."""


def build_image(
    name: str,
    images_dir: Path,
    progress: Report = _silent,
    *,
    recipes_dir: Path = RECIPES,
    rebuild: bool = False,
) -> Image:
    """Builds `<images_dir>/<name>/` from its recipe, or returns it if it exists already.

    With `rebuild` a new tree takes its place in one step; the old one stays, since disks of existing
    sandboxes are layers over exactly that tree.
    """
    recipe, overlays, recipe_digest = load_recipe(name, recipes_dir)
    with suppress(NotFound):
        existing = find_image(name, images_dir)
        if not rebuild:
            return existing
    _check_host()
    images_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    _check_space(images_dir, recipe)
    mirrors = choose_mirrors(recipe, _os_release(), _host_sources(Path("/etc/apt")))
    started = time.monotonic()
    with _plain_umask(), hold_images(images_dir) as lock, _scratch(images_dir, name) as scratch:
        rootfs = scratch / "rootfs"
        bootstrap(recipe, mirrors, rootfs, lock, progress)
        install_from_pypi(recipe.pypi, rootfs, progress)
        progress(Progress("finishing", 0.97))
        size = finish(rootfs, overlays, mirrors)
        packages = _installed(rootfs)
        image = _describe(images_dir / name, recipe_digest, mirrors, packages, size, started)
        (scratch / RECORD).write_text(image.to_json())
        _publish(scratch, images_dir / name, image.digest)
    progress(Progress("ready", 1.0))
    return image


def _describe(
    folder: Path, recipe_digest: str, mirrors: Mirrors, packages: dict[str, str], size: int, started: float
) -> Image:
    listing = "\n".join(f"{package}={version}" for package, version in packages.items())
    return Image(
        name=folder.name,
        digest="sha256:" + hashlib.sha256(f"{recipe_digest}\n{listing}".encode()).hexdigest(),
        recipe_digest=recipe_digest,
        built_at=datetime.now(UTC),
        build_seconds=round(time.monotonic() - started, 1),
        size_bytes=size,
        distribution=mirrors.distribution,
        suite=mirrors.suite,
        architecture=os.uname().machine,
        folder=folder,
        packages=packages,
    )


def load_recipe(name: str, recipes_dir: Path = RECIPES) -> tuple[Recipe, tuple[Path, ...], str]:
    """Returns the recipe with everything it extends, its overlay folders, and a digest over all of it."""
    return _load(name, recipes_dir, children=())


def _load(name: str, recipes_dir: Path, children: tuple[str, ...]) -> tuple[Recipe, tuple[Path, ...], str]:
    path = recipes_dir / f"{name}.yaml"
    if "/" in name or not path.is_file():
        known = ", ".join(sorted(p.stem for p in recipes_dir.glob("*.yaml"))) or "none"
        raise NotFound(what="image recipe", id=f"{name} (known: {known})")
    text = path.read_text()
    recipe = parse_recipe(text, source=f"images/{path.name}")
    digest = hashlib.sha256(text.encode())
    overlays = tuple(recipes_dir / folder for folder in recipe.overlays)
    for overlay in overlays:
        if not overlay.is_dir():
            raise NotFound(what="overlay folder", id=str(overlay))
        for file in sorted(p for p in overlay.rglob("*") if p.is_file()):
            digest.update(str(file.relative_to(overlay)).encode() + b"\0" + file.read_bytes())
    if recipe.extends is None:
        return recipe, overlays, "sha256:" + digest.hexdigest()
    if recipe.extends in (name, *children):
        raise InvalidRequest(field=f"images/{path.name}", why=f"{recipe.extends} extends itself")
    parent, parent_overlays, parent_digest = _load(recipe.extends, recipes_dir, (name, *children))
    digest.update(parent_digest.encode())
    return extend(recipe, parent), (*parent_overlays, *overlays), "sha256:" + digest.hexdigest()


def _check_host() -> None:
    if os.geteuid() != 0:
        raise ImageBuildFailed(why="building an image needs root: its files belong to many users")
    missing = [tool for tool in ("mmdebstrap", "apt-get", "dpkg-query") if shutil.which(tool) is None]
    if missing:
        raise ImageBuildFailed(why=f"missing on this host: {', '.join(missing)} (apt-get install mmdebstrap)")


def _check_space(images_dir: Path, recipe: Recipe) -> None:
    free = shutil.disk_usage(images_dir).free
    needed = _NEEDED_BYTES + _BYTES_EACH * len(recipe.packages)
    if free < needed:
        raise ImageBuildFailed(
            why=f"{images_dir} has {free / 1e9:.1f} GB free and a build needs {needed / 1e9:.1f} GB"
        )


def _os_release() -> dict[str, str]:
    try:
        return dict(parse_os_release(Path("/etc/os-release").read_text()))
    except FileNotFoundError:
        return {}


def _host_sources(apt: Path) -> list[Source]:
    found: list[Source] = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if path.is_file() and path.suffix in (".list", ".sources"):
            parse = parse_list if path.suffix == ".list" else parse_deb822
            found += parse(path.read_text(errors="replace"))
    return found


@contextmanager
def _plain_umask() -> Iterator[None]:
    """Sets a umask that suits users of every uid, whatever umask the operator has."""
    before = os.umask(0o022)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def hold_images(images_dir: Path) -> Iterator[int]:
    """Allows one build or removal at a time. mmdebstrap inherits the lock, so that it holds until mmdebstrap
    ends even if the server is killed.
    """
    descriptor = os.open(images_dir / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ImageBuildFailed(why=f"another build is under way in {images_dir}; wait for it") from None
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _scratch(images_dir: Path, name: str) -> Iterator[Path]:
    """Yields a folder on the same file system, which is removed afterwards unless it was renamed
    into place.
    """
    for leftover in images_dir.glob(".building-*"):  # we hold the lock: nobody works in them
        _remove_tree(leftover)
    scratch = images_dir / f".building-{name}-{os.getpid()}"
    scratch.mkdir(mode=0o755)
    try:
        yield scratch
    finally:
        _remove_tree(scratch)


def _remove_tree(folder: Path) -> None:
    # Never across a mount: a killed build may have had the host's /dev inside.
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], check=False)


def _installed(rootfs: Path) -> dict[str, str]:
    query = ["dpkg-query", f"--admindir={rootfs}/var/lib/dpkg", "-W", "-f", "${Package} ${Version}\n"]
    listing = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return dict(sorted(line.split(" ", 1) for line in listing.splitlines()))


def _publish(scratch: Path, target: Path, digest: str) -> None:
    """Moves the tree to `<name>@<digest>`, its permanent place, and switches the link `<name>` to it in one
    step.
    """
    stem = f"{target.name}@{digest.removeprefix('sha256:')[:12]}"
    names = (stem if number == 1 else f"{stem}-{number}" for number in count(1))
    tree = next(path for name in names if not (path := target.with_name(name)).exists())
    scratch.rename(tree)
    link = target.with_name(f".building-{target.name}-link")
    link.symlink_to(tree.name)
    if target.is_dir() and not target.is_symlink():  # put there by hand
        target.rename(target.with_name(f"{target.name}@by-hand-{os.getpid()}"))
    link.rename(target)
