"""Writing what came out of a sandbox to a local file."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@contextmanager
def appearing(path: Path) -> Iterator[IO[bytes]]:
    """A file that has its name when the block ends well, and never was otherwise.

    A new one under a name nobody can guess: a link that waits in its place would lead the bytes elsewhere.
    """
    draft = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}.part")
    try:
        with os.fdopen(os.open(draft, _NEW, 0o666), "wb") as file:
            yield file
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
