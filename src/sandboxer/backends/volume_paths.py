"""Checks where inside a sandbox a volume may be mounted. Pure; every backend and the use cases use it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from sandboxer.backends.contract import VolumeMount
from sandboxer.kernel.errors import InvalidRequest

MOST = 8
_MAX_PATH = 200
_PATH = re.compile(r"(/[^/\x00-\x1f\x7f]{1,100})+")
# The kernel's, the supervisor's, and what says who is who inside: neither these nor anything below.
RESERVED = ("proc", "dev", "sys", "run", "etc")
# What a sandbox cannot do without; below them there is room.
_WHOLE = frozenset({"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/var", "/boot"})


def check_volume_paths(mounts: Sequence[VolumeMount]) -> None:
    """Checks the paths of all volumes of a sandbox. Raises InvalidRequest naming the field."""
    if len(mounts) > MOST:
        raise InvalidRequest(field="volumes", why=f"at most {MOST}")
    if len({one.volume_id for one in mounts}) < len(mounts):
        raise InvalidRequest(field="volumes", why="one of them is named twice")
    for number, mount in enumerate(mounts):
        why = _complaint(mount.path)
        if why is not None:
            raise InvalidRequest(field=f"volumes.{number}.path", why=why)
    paths = sorted(f"{one.path}/" for one in mounts)
    for above, below in pairwise(paths):
        if below.startswith(above):
            raise InvalidRequest(field="volumes", why=f"{below[:-1]} lies in {above[:-1]}")


def _complaint(path: str) -> str | None:
    parts = path.split("/")[1:]
    try:
        path.encode()
    except UnicodeEncodeError:
        return "not a text that can be a path"
    if len(path) > _MAX_PATH or not _PATH.fullmatch(path) or {".", ".."} & set(parts):
        return f"an absolute path without . and .., of at most {_MAX_PATH} characters"
    if parts[0] in RESERVED or path in _WHOLE:
        return f"/{parts[0]} is the sandbox's own"
    return None
