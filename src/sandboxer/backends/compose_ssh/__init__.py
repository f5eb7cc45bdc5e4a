"""`ext.compose-ssh`: sandboxes with a compose stack, on a host that is reached by SSH."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sandboxer.backends.compose_ssh.backend import NAME, ComposeSshBackend, ComposeSshSettings
from sandboxer.backends.compose_ssh.engine import MOST_DIR
from sandboxer.backends.compose_ssh.host import StackHost
from sandboxer.kernel.errors import InvalidRequest

# Checks of the contract that it does not pass, and why.
DEVIATIONS = {
    "kill_ends_children_that_left_their_parent_and_session": "its processes are in no cgroup of this machine:"
    " whoever leaves the session of a command outlives it until the sandbox ends",
}


@asynccontextmanager
async def open_compose_ssh(settings: ComposeSshSettings) -> AsyncIterator[ComposeSshBackend]:
    """Opens the backend. The host is asked for nothing yet. Raises InvalidRequest."""
    remote_dir = settings.host.remote_dir
    if not remote_dir.startswith("/") or remote_dir.endswith("/") or len(remote_dir) > MOST_DIR:
        why = f"remote_dir is an absolute path of at most {MOST_DIR} characters"
        raise InvalidRequest(field="compose_ssh", why=why)
    backend = ComposeSshBackend(settings)
    try:
        yield backend
    finally:
        await backend.close()


__all__ = [
    "DEVIATIONS",
    "NAME",
    "ComposeSshBackend",
    "ComposeSshSettings",
    "StackHost",
    "open_compose_ssh",
]
