"""What no image carries along, whoever may see it: what tells one machine from another, and credentials in
the places where programs keep them. Whoever wants a copy with all of that clones the snapshot instead.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Collection

from sandboxer.artifacts.images.published import tree
from sandboxer.artifacts.images.published.tree import Bounds, Kind

_ANYWHERE = rb"(.*/)?"
_STRIPPED = re.compile(
    rb"|".join(
        (
            # Of the machine.
            rb"etc/machine-id|var/lib/dbus/machine-id",
            rb"etc/ssh/ssh_host_[^/]+",
            rb"var/lib/systemd/(random-seed|credential\.secret)|var/lib/urandom/random-seed",
            rb"run/.+|var/run/.+",
            # Of its users.
            _ANYWHERE + rb"\.ssh/[^/]+",
            _ANYWHERE
            + rb"\.(bash|zsh|sh|ash|ksh|fish|python|node_repl|psql|mysql|sqlite|rediscli|irb)_history",
            _ANYWHERE + rb"\.(lesshst|viminfo|wget-hsts|histfile|history)",
            _ANYWHERE + rb"\.local/share/fish/fish_history",
            _ANYWHERE + rb"\.(netrc|pgpass|git-credentials|pypirc|vault-token|cargo/credentials(\.toml)?)",
            _ANYWHERE + rb"\.aws/credentials|" + _ANYWHERE + rb"\.azure/[^/]+\.json",
            _ANYWHERE + rb"\.docker/config\.json|" + _ANYWHERE + rb"\.kube/config",
            _ANYWHERE + rb"\.config/(gh/hosts\.yml|hub|gcloud/.+|containers/auth\.json|sandboxer/.+)",
            _ANYWHERE + rb"\.gnupg/.+",
        )
    )
)


def is_stripped(path: bytes) -> bool:
    """Pure. From the root of the layer, without a slash in front."""
    return _STRIPPED.fullmatch(path) is not None


def strip(layer: int, bounds: Bounds) -> list[str]:
    """Remove it all; returns what was removed. Blocks."""
    return _remove(layer, bounds, is_stripped)


def remove(layer: int, paths: Collection[str], bounds: Bounds) -> list[str]:
    """These files, written as findings write them."""
    wanted = frozenset(paths)
    return _remove(layer, bounds, lambda path: _shown(path) in wanted)


def _remove(layer: int, bounds: Bounds, is_wanted: Callable[[bytes], bool]) -> list[str]:
    removed: list[str] = []
    for entry in tree.walk(layer, bounds):
        if entry.kind in (Kind.FOLDER, Kind.HIDDEN) or not is_wanted(entry.path):
            continue
        with contextlib.suppress(FileNotFoundError):
            os.unlink(entry.name, dir_fd=entry.folder_fd)
            removed.append(_shown(entry.path))
    return removed


def _shown(path: bytes) -> str:
    return "/" + os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
