"""Makes a freshly unpacked tree fit to be shared: our files in, this host and everything special out."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path

from sandboxer.artifacts.images.mirrors import Mirrors
from sandboxer.kernel.errors import Broken

_MAX_ID = 65535
# apt asks for packages it trusts without a terminal, and takes no recommendations: the box is small.
_APT_CONF = 'APT::Install-Recommends "false";\nAcquire::Languages "none";\n'
# Compiled and fetched things that apt can make again.
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
    """Finish the tree and return its size in bytes."""
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
    # Logs and apt's folders are expected to be there.
    for name in ("var/cache/apt/archives/partial", "var/lib/apt/lists/partial", "var/log/apt"):
        (rootfs / name).mkdir(parents=True, exist_ok=True)
    for name in ("etc/resolv.conf", "etc/hostname", "etc/hosts"):
        (rootfs / name).unlink(missing_ok=True)  # mmdebstrap copies the host's


def _lay_over(overlay: Path, rootfs: Path) -> None:
    """Copy bytes and the executable bit only: the checkout may have any owner and umask."""
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
    """No devices, sockets or pipes, no setuid programs, ids that fit a sandbox's range. Returns the size."""
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
                # They do nothing under no-new-privileges, and would be a trap on the host.
                os.chmod(path, stat.S_IMODE(facts.st_mode) & ~(stat.S_ISUID | stat.S_ISGID))
            total += facts.st_blocks * 512 // max(facts.st_nlink if kind == stat.S_IFREG else 1, 1)
    return total
