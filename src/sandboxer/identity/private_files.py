"""Files that hold secrets: mode 0600 from their first instant, whole or absent after any crash."""

from __future__ import annotations

import os
import secrets
from pathlib import Path


def create_private_file(path: Path, text: str) -> bool:
    """Write a new file; False (and nothing done) if there is one already."""
    draft = _draft(path, text)
    try:
        os.link(draft, path)
    except FileExistsError:
        return False
    finally:
        draft.unlink()
    _sync_folder(path.parent)
    return True


def replace_private_file(path: Path, text: str) -> None:
    """Write the file; a reader sees the old content or the new, never a part."""
    draft = _draft(path, text)
    os.replace(draft, path)
    _sync_folder(path.parent)


def _draft(path: Path, text: str) -> Path:
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    # O_EXCL and the mode in one call: there is no moment in which others could open it.
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        draft.unlink()
        raise
    return draft


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
