"""What no image carries along, whoever may see it: what tells one machine from another, and credentials in
the places where programs keep them. Whoever wants a copy with all of that clones the snapshot instead.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable

from sandboxer.artifacts.images.published import tree
from sandboxer.artifacts.images.published.scanning import Scan
from sandboxer.artifacts.images.published.telling import Told
from sandboxer.artifacts.images.published.tree import Bounds, Entry, Kind

_ANYWHERE = rb"(.*/)?"
_STRIPPED = re.compile(
    rb"|".join(
        (
            # Of the machine.
            rb"etc/machine-id|var/lib/dbus/machine-id",
            rb"etc/ssh/ssh_host_[^/]+",
            rb"var/lib/systemd/(random-seed|credential\.secret)|var/lib/urandom/random-seed",
            rb"run/.+|var/run/.+",
            # Of its way out: the authority that one sandbox trusts, and how apt is told of it.
            rb"usr/local/share/ca-certificates/sandboxer-egress\.crt|etc/apt/apt\.conf\.d/95sandboxer-egress",
            rb"etc/ssl/certs/sandboxer-egress\.pem|etc/sandboxer/egress/.+",
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


def strip(layer: int, bounds: Bounds, removed: Told[str]) -> None:
    """Remove it all, and tell of it. Blocks."""
    _remove(layer, bounds, lambda entry: is_stripped(entry.path), removed)


def strip_secrets(layer: int, bounds: Bounds, removed: Told[str]) -> None:
    """The same with every file in which something looks like a secret."""
    _remove(layer, bounds, _is_telling, removed)


def _is_telling(entry: Entry) -> bool:
    if entry.kind is not Kind.FILE:
        return False
    scan = Scan(entry.path)
    for chunk in tree.read(entry):
        scan.feed(chunk)
    scan.finish()
    return bool(scan.findings)


def _remove(layer: int, bounds: Bounds, is_wanted: Callable[[Entry], bool], removed: Told[str]) -> None:
    for entry in tree.walk(layer, bounds):
        if entry.kind in (Kind.FOLDER, Kind.HIDDEN) or not is_wanted(entry):
            continue
        with contextlib.suppress(FileNotFoundError):
            os.unlink(entry.name, dir_fd=entry.folder_fd)
            removed.add(_shown(entry.path))


def _shown(path: bytes) -> str:
    return "/" + os.fsdecode(path).encode("utf-8", "backslashreplace").decode()
