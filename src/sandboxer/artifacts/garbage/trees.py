"""The trees of base images as folders that may go: which there are, since when each is needed by nobody, and
their removal. Everything here blocks: callers run it in a thread.

Only `<name>@<digest>` folders are ever touched, and never one that a name links to: what the newest build of
an image means stays, whether anything lies over it or not.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from sandboxer.artifacts.images.build import hold_images
from sandboxer.artifacts.images.catalog import Image, list_images
from sandboxer.kernel.errors import ImageBuildFailed

# Beside `rootfs` in a tree's folder, so that it goes with the tree: since when nobody needs it.
NOTE = "unneeded-since"
# Out of sight, until it was asked once more whether anybody needs it; decided, and on its way out.
HIDDEN = ".hidden-"
GONE = ".gone-"


@dataclass(frozen=True, slots=True)
class Trees:
    path: Path
    # False: other servers may have disks over the same trees, and nobody here can know.
    is_ours: bool

    def all(self) -> Mapping[str, Image]:
        """By the folder's name; those that a name means are not among them."""
        if not self.path.is_dir():
            return {}
        meant = {os.path.basename(os.readlink(one)) for one in self.path.iterdir() if one.is_symlink()}
        return {
            image.folder.name: image
            for image in list_images(self.path)
            if "@" in image.folder.name
            and not image.folder.is_symlink()
            and image.rootfs.is_dir()
            and image.folder.name not in meant
        }

    def since(self, tree: str) -> datetime | None:
        """Noted when it was first seen that nobody needs it."""
        try:
            return datetime.fromisoformat((self.path / tree / NOTE).read_text().strip())
        except (OSError, ValueError):
            return None

    def note(self, tree: str, now: datetime) -> None:
        (self.path / tree / NOTE).write_text(now.isoformat() + "\n")

    def forget(self, tree: str) -> None:
        """Somebody needs it again."""
        with suppress(FileNotFoundError):
            os.unlink(self.path / tree / NOTE)

    def remove(self, tree: str, is_needed: Callable[[], bool]) -> bool:
        """Out of everybody's sight first, then asked once more, and only then removed. False: it stays."""
        try:
            with hold_images(self.path):
                if tree not in self.all():
                    return False
                hidden, gone = self.path / f"{HIDDEN}{tree}", self.path / f"{GONE}{tree}"
                os.rename(self.path / tree, hidden)
                is_wanted = True
                try:
                    is_wanted = is_needed()
                finally:
                    # Whoever cannot be asked may need it.
                    if is_wanted:
                        os.rename(hidden, self.path / tree)
                if is_wanted:
                    return False
                os.rename(hidden, gone)
                _remove(gone)
                return True
        except ImageBuildFailed:
            # A build is under way, and may be about to mean another tree.
            return False

    def sweep(self) -> None:
        """At the start: what a killed server had decided on goes, what it had not comes back."""
        if not self.is_ours or not self.path.is_dir():
            return
        for folder in self.path.glob(f"{GONE}*"):
            _remove(folder)
        for folder in self.path.glob(f"{HIDDEN}*"):
            os.rename(folder, self.path / folder.name.removeprefix(HIDDEN))


def _remove(folder: Path) -> None:
    # Never across a mount.
    subprocess.run(["rm", "-rf", "--one-file-system", "--", str(folder)], check=False)
