"""Puts pinned Python packages into a tree from outside it: some compilers come as wheels and nowhere else."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sandboxer.artifacts.images.progress import Progress, Report
from sandboxer.kernel.errors import ImageBuildFailed

# The tree's libc is at least this new (Debian 12 has 2.36).
_GLIBC = ("2_28", "2_27", "2_17", "2_12")


def install_from_pypi(requirements: Sequence[str], rootfs: Path, progress: Report) -> None:
    """Wheels only: nothing of a package runs on this host. Programs they bring are linked into the path."""
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
