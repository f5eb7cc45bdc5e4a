"""Makes a freshly unpacked tree fit to be shared: adds our files and pinned Python packages, and removes
traces of this host and special files. Python packages are installed from outside, because some compilers
exist only as wheels.
"""

from __future__ import annotations

import os
import platform
import shutil
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sandboxer.artifacts.images.bootstrap import Progress, Report
from sandboxer.artifacts.images.mirrors import Mirrors
from sandboxer.kernel.errors import Broken, ImageBuildFailed

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
    found = sorted((rootfs / "usr/lib").glob("python3.*"))
    if not found:
        raise ImageBuildFailed(why="the recipe asks for wheels but its packages bring no python3")
    return found[-1].name.removeprefix("python")


def _link_programs(target: Path, rootfs: Path) -> None:
    folder = rootfs / "usr/local/bin"
    folder.mkdir(parents=True, exist_ok=True)
    inside = Path("/") / target.relative_to(rootfs)
    for program in sorted((target / "bin").glob("*")):
        program.chmod(0o755)
        link = folder / program.name
        link.unlink(missing_ok=True)
        link.symlink_to(inside / "bin" / program.name)
