"""Finds the program of an OCI runtime on this host."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from sandboxer.backends.oci.bundle import RuntimeKind
from sandboxer.kernel.errors import NotAvailable

# In the version of a runsc that scripts/build-runsc made.
_MENDED = "-sandboxer-"


def find_runtime(name: str) -> Path:
    """Returns the program. Raises NotAvailable when there is none, or one that is no runtime we know."""
    found = shutil.which(name)
    if found is None:
        raise NotAvailable(what="ext.oci", why=f"there is no {name} on this host")
    if Path(found).name not in [*RuntimeKind]:
        raise NotAvailable(what="ext.oci", why=f"{found} is none of {', '.join(RuntimeKind)}")
    if Path(found).name == RuntimeKind.RUNSC and _MENDED not in version_of(found):
        # It would lose bytes between us and what runs inside.
        raise NotAvailable(what="ext.oci", why=f"{found} was not built by scripts/build-runsc")
    return Path(found)


def version_of(program: str) -> str:
    """Returns what the program says of itself."""
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    return done.stdout
