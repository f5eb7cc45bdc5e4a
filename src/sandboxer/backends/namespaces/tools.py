"""The layer that lies below every image: what each sandbox finds inside although neither its image nor its
disk has it, and what is therefore in no snapshot and in no published image.

It holds the client of the inside and the folder over which a sandbox is told where it is. An image or a disk
that has something of the same name hides it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from sandboxer.backends.guest import INSIDE
from sandboxer.backends.namespaces.settings import NamespacesSettings

CLIENT = "usr/local/bin/sandboxer"


def tools_tree(settings: NamespacesSettings) -> Path:
    """Returns the layer with the client of this release. Blocks.

    A layer that sandboxes run over must not change, so each client has a tree of its own, named by its
    content. Trees of former releases stay: they are small, and somebody may still run over them.
    """
    program = settings.guest_dir / "client"
    content = program.read_bytes() if program.is_file() else b""
    tree = settings.tools_dir / hashlib.sha256(content).hexdigest()[:16]
    if not tree.is_dir():
        settings.tools_dir.mkdir(mode=0o700, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".new-", dir=settings.tools_dir))
        _fill(made, content)
        try:
            made.rename(tree)
        except OSError:
            # Made meanwhile by another server of this folder, or a former one could not remove it.
            shutil.rmtree(made, ignore_errors=True)
    return tree


def _fill(tree: Path, client: bytes) -> None:
    """Whatever the umask: users inside must be able to pass and to run it."""
    for folder in (INSIDE.lstrip("/"), os.path.dirname(CLIENT) if client else ""):
        place = tree
        place.chmod(0o755)
        for name in Path(folder).parts:
            place = place / name
            place.mkdir(exist_ok=True)
            place.chmod(0o755)
    if client:
        (tree / CLIENT).write_bytes(client)
        (tree / CLIENT).chmod(0o755)
