"""Builds an image with mmdebstrap, and lists the images on this host: `<name>@<digest>/` is a permanent tree,
`<name>` a link to the newest of them. An interrupted build leaves nothing that looks like an image.

Makes a freshly unpacked tree fit to be shared: adds our files and pinned Python packages, and removes
traces of this host and special files. Python packages are installed from outside, because some compilers
exist only as wheels.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from sandboxer.artifacts.images.bootstrap import Progress, Report, bootstrap
from sandboxer.artifacts.images.recipe import (
    Mirrors,
    Recipe,
    Source,
    choose_mirrors,
    extend,
    parse_deb822,
    parse_list,
    parse_os_release,
    parse_recipe,
)
from sandboxer.backends.shared import opened
from sandboxer.kernel.errors import Broken, ImageBuildFailed, InvalidRequest, NotFound
from sandboxer.kernel.program import RECIPES, late
from sandboxer.kernel.values import brief_value_class

if TYPE_CHECKING:
    import compileall
else:
    compileall = late("compileall")

_MAX_ID = 65535
# apt installs trusted packages without asking, and no recommended ones, to keep the sandbox small.
_APT_CONF = 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n'
# Caches that apt can make again.
_DISPOSABLE = (
    "var/cache/apt",
    "var/cache/debconf",
    "var/cache/ldconfig",
    "var/lib/apt/lists",
    "var/log",
    "tmp",
    "dev",
)


def finish(rootfs: Path, overlays: Sequence[Path], mirrors: Mirrors) -> int:
    """Finishes the tree and returns its size in bytes."""
    _empty(rootfs)
    for overlay in overlays:
        _lay_over(overlay, rootfs)
    _configure_apt(rootfs, mirrors)
    (rootfs / "etc/machine-id").write_text("")
    workspace = rootfs / "workspace"
    workspace.mkdir(exist_ok=True)
    workspace.chmod(0o1777)
    return _normalise(rootfs)


def _empty(rootfs: Path) -> None:
    for name in _DISPOSABLE:
        folder = rootfs / name
        if not folder.is_dir() or folder.is_symlink():
            continue
        for entry in sorted(folder.iterdir()):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
    # Programs expect these folders to exist.
    for name in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial", "var/log/apt"):
        (rootfs / name).mkdir(parents=True, exist_ok=True)
    for name in ("etc/resolv.conf", "etc/hostname", "etc/hosts"):
        (rootfs / name).unlink(missing_ok=True)  # mmdebstrap copies the host's


def _lay_over(overlay: Path, rootfs: Path) -> None:
    """Copies only bytes and the executable bit: the checkout may have any owner and umask."""
    for source in sorted(overlay.rglob("*")):
        target = rootfs / source.relative_to(overlay)
        if source.is_dir():
            if not target.is_dir():
                target.mkdir()
                target.chmod(0o755)
            continue
        shutil.copyfile(source, target)
        os.chown(target, 0, 0)
        target.chmod(0o755 if source.stat().st_mode & stat.S_IXUSR else 0o644)


def _configure_apt(rootfs: Path, mirrors: Mirrors) -> None:
    apt = rootfs / "etc/apt"
    (apt / "sources.list").write_text("".join(source.line() + "\n" for source in mirrors.inside))
    for leftover in (apt / "sources.list.d").glob("*"):
        leftover.unlink()
    (apt / "apt.conf.d/99mmdebstrap").unlink(missing_ok=True)
    (apt / "apt.conf.d/50sandbox").write_text(_APT_CONF)


def _normalise(rootfs: Path) -> int:
    """Removes devices, sockets and pipes, clears setuid bits, checks that ids fit a sandbox's range, and
    returns the size.
    """
    total = 0
    for folder, names, files in os.walk(rootfs):
        for name in (*names, *files):
            path = os.path.join(folder, name)
            facts = os.lstat(path)
            if max(facts.st_uid, facts.st_gid) > _MAX_ID:
                raise Broken(why=f"{path} belongs to {facts.st_uid}:{facts.st_gid}, beyond a sandbox's ids")
            kind = stat.S_IFMT(facts.st_mode)
            if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                os.unlink(path)
                continue
            if kind == stat.S_IFREG and facts.st_mode & (stat.S_ISUID | stat.S_ISGID):
                # They have no effect under no-new-privileges, and would be dangerous on the host.
                os.chmod(path, stat.S_IMODE(facts.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
            total += facts.st_blocks * 512 // max(facts.st_nlink if kind == stat.S_IFREG else 1, 1)
    return total


# The tree's libc is at least this new (Debian 12 has 2.36).
_GLIBC = ("2_28", "2_27", "2_17", "2_12")


def install_from_pypi(requirements: Sequence[str], rootfs: Path, progress: Report) -> None:
    """Installs wheels only, so that nothing of a package runs on this host. Their programs are linked into
    the path.
    """
    if not requirements:
        return
    progress(Progress("fetching wheels", 0.95))
    version = _python_of(rootfs)
    target = rootfs / f"usr/local/lib/python{version}/dist-packages"
    done = subprocess.run(
        _command(requirements, target, version), capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or "pip said nothing").splitlines()[-1]
        raise ImageBuildFailed(why=f"pip could not fetch {', '.join(requirements)}: {last}")
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        # Compiled once here, and not in every sandbox again; nothing of it runs.
        compileall.compile_dir(target, quiet=2, stripdir=rootfs, prependdir="/")
    _link_programs(target, rootfs)


def _command(requirements: Sequence[str], target: Path, version: str) -> list[str]:
    machine = platform.machine()
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--target", str(target), "--only-binary=:all:", "--no-compile"]
    command += ["--implementation", "cp", "--python-version", version]
    for glibc in _GLIBC:
        command += ["--platform", f"manylinux_{glibc}_{machine}"]
    return [*command, "--platform", f"manylinux2014_{machine}", *requirements]


def _python_of(rootfs: Path) -> str:
    if not (found := sorted((rootfs / "usr/lib").glob("python3.*"))):
        raise ImageBuildFailed(why="the recipe asks for wheels but its packages bring no python3")
    return found[-1].name.removeprefix("python")


def _link_programs(target: Path, rootfs: Path) -> None:
    folder = rootfs / "usr/local/bin"
    folder.mkdir(parents=True, exist_ok=True)
    inside = Path("/") / target.relative_to(rootfs)
    for program in sorted((target / "bin").glob("*")):
        program.chmod(0o755)
        _run_inside(program)
        link = folder / program.name
        link.unlink(missing_ok=True)
        link.symlink_to(inside / "bin" / program.name)


def _run_inside(program: Path) -> None:
    """Makes a script that pip wrote run by the tree's own Python, and not by the one that wrote it."""
    with program.open("rb") as file:
        is_script = file.read(2) == b"#!"
    if is_script:
        program.write_text(program.read_text().replace(sys.executable, "/usr/bin/python3", 1))


RECORD = "image.json"


@brief_value_class
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
    # As it was built; its folder may have another name by now.
    recorded_name: str

    @property
    def rootfs(self) -> Path:
        return self.folder / "rootfs"

    def to_json(self) -> str:
        facts = asdict(self) | {"built_at": self.built_at.isoformat(), "packages": dict(self.packages)}
        del facts["folder"], facts["recorded_name"]  # an image may be moved
        return json.dumps(facts, indent=1) + "\n"


def find_image(name: str, images_dir: Path) -> Image:
    """Returns the image of that name. Raises NotFound, which says how to get it."""
    if "/" in name or name.startswith(".") or not (images_dir / name / RECORD).is_file():
        raise NotFound(what="image", id=name, hint=f"Build it: sandboxer image build {name}")
    return load_image(images_dir / name)


def list_images(images_dir: Path) -> list[Image]:
    """Returns images by name, then, as `name@digest`, older trees that disks of sandboxes may
    still lie over.
    """
    if not images_dir.is_dir():
        return []
    folders = sorted(p for p in images_dir.iterdir() if not p.name.startswith(".") and (p / RECORD).is_file())
    linked = {os.readlink(folder) for folder in folders if folder.is_symlink()}
    images = [load_image(folder) for folder in folders if folder.name not in linked]
    return sorted(images, key=lambda image: ("@" in image.name, image.name))


def load_image(folder: Path) -> Image:
    try:
        facts = json.loads((folder / RECORD).read_text())
        facts |= {"name": folder.name, "recorded_name": facts["name"]}
        built_at = datetime.fromisoformat(facts.pop("built_at"))
        return Image(**facts, built_at=built_at, folder=folder)
    except (ValueError, TypeError, KeyError) as error:
        raise Broken(why=f"{folder / RECORD} is not an image record: {error}") from error


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
    with _plain_umask(), hold_images(images_dir) as lock, scratch_in(images_dir, name) as scratch:
        rootfs = scratch / "rootfs"
        bootstrap(recipe, mirrors, rootfs, lock, progress)
        install_from_pypi(recipe.pypi, rootfs, progress)
        progress(Progress("finishing", 0.97))
        size = finish(rootfs, overlays, mirrors)
        packages = installed(rootfs)
        image = _describe(images_dir / name, recipe_digest, mirrors, packages, size, started)
        (scratch / RECORD).write_text(image.to_json())
        publish(scratch, images_dir / name, image.digest)
    progress(Progress("ready", 1.0))
    return image


def _describe(
    folder: Path, recipe_digest: str, mirrors: Mirrors, packages: dict[str, str], size: int, started: float
) -> Image:
    return Image(
        name=folder.name,
        digest=digest_of(recipe_digest, packages),
        recipe_digest=recipe_digest,
        built_at=datetime.now(UTC),
        build_seconds=round(time.monotonic() - started, 1),
        size_bytes=size,
        distribution=mirrors.distribution,
        suite=mirrors.suite,
        architecture=os.uname().machine,
        folder=folder,
        packages=packages,
        recorded_name=folder.name,
    )


def digest_of(recipe_digest: str, packages: Mapping[str, str]) -> str:
    listing = "\n".join(f"{package}={version}" for package, version in packages.items())
    return "sha256:" + hashlib.sha256(f"{recipe_digest}\n{listing}".encode()).hexdigest()


def load_recipe(name: str, recipes_dir: Path = RECIPES) -> tuple[Recipe, tuple[Path, ...], str]:
    """Returns the recipe with everything it extends, its overlay folders, and a digest over all of it."""
    return _load(name, recipes_dir, children=())


def _load(name: str, recipes_dir: Path, children: tuple[str, ...]) -> tuple[Recipe, tuple[Path, ...], str]:
    path = recipes_dir / f"{name}.yaml"
    if "/" in name or not path.is_file():
        known = ", ".join(sorted(p.stem for p in recipes_dir.glob("*.yaml"))) or "none"
        hint = f"Name one of those, or the folder of a Dockerfile, as in ./{name}."
        raise NotFound(what="image recipe", id=f"{name} (known: {known})", hint=hint)
    text = path.read_text()
    recipe = parse_recipe(text, source=f"images/{path.name}")
    digest = hashlib.sha256(text.encode())
    overlays = tuple(recipes_dir / folder for folder in recipe.overlays)
    for overlay in overlays:
        if not overlay.is_dir():
            raise NotFound(what="overlay folder", id=str(overlay), hint="Correct `overlay` in the recipe.")
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
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    with opened(images_dir / ".lock", flags, mode=0o600) as descriptor:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ImageBuildFailed(why=f"another build is under way in {images_dir}; wait for it") from None
        yield descriptor


@contextmanager
def scratch_in(images_dir: Path, name: str) -> Iterator[Path]:
    """Yields a folder on the same file system, which is removed afterwards unless it was renamed
    into place.
    """
    for leftover in images_dir.glob(".building-*"):  # we hold the lock: nobody works in them
        remove_tree(leftover)
    scratch = images_dir / f".building-{name}-{os.getpid()}"
    scratch.mkdir(mode=0o755)
    try:
        yield scratch
    finally:
        remove_tree(scratch)


def remove_tree(folder: Path) -> None:
    # Never across a mount: a killed build may have had the host's /dev inside.
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], check=False)


def installed(rootfs: Path) -> dict[str, str]:
    query = ["dpkg-query", f"--admindir={rootfs}/var/lib/dpkg", "-W", "-f", "${Package} ${Version}\n"]
    listing = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    return dict(sorted(line.split(" ", 1) for line in listing.splitlines()))


def publish(scratch: Path, target: Path, digest: str) -> None:
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
