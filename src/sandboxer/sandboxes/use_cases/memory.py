"""What runs in a sandbox can be kept when it stops, if its backend does that: it goes on when it is resumed.

What is kept costs as much as disk (`Terms.memory_mb`), from the step that records it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from sandboxer.backends.contract import Backend, Handle, KeepsMemory, Stops
from sandboxer.kernel.errors import Conflict, NotAvailable, SandboxerError
from sandboxer.sandboxes.lifecycle import LIVE, State
from sandboxer.sandboxes.records import Sandbox

log = logging.getLogger(__name__)
_MB = 1024 * 1024


def memory_of(backend: Backend, sandbox: Sandbox) -> KeepsMemory:
    """Return what keeps what runs in it. Raises NotAvailable where nothing does, and Conflict for what could
    not go on.
    """
    if not isinstance(backend, KeepsMemory):
        raise NotAvailable(
            what="memory",
            why=f"{sandbox.backend} keeps files alone",
            hint="Leave `memory` out, or make the sandbox behind a backend that keeps it (gVisor).",
        )
    if _has_mounts(sandbox):
        raise Conflict(
            why="what runs in it may hold files of volumes or of a read-only workspace, which are not kept",
            reason="memory_of_mounts",
            hint="Keep its files alone.",
        )
    return backend


def can_keep(backend: Backend | None, sandbox: Sandbox) -> bool:
    """Return whether what runs in it can be kept."""
    return isinstance(backend, KeepsMemory) and not _has_mounts(sandbox)


def can_be_kept_now(sandbox: Sandbox) -> bool:
    """Return whether anything runs in it, or was kept when it stopped."""
    return sandbox.state in LIVE or (sandbox.state is State.STOPPED and sandbox.terms.memory_mb > 0)


def _has_mounts(sandbox: Sandbox) -> bool:
    return bool(sandbox.volumes or sandbox.order().folders)


async def stop_keeping(backend: Backend, sandbox: Sandbox, handle: Handle) -> int:
    """Stop it and keep what runs in it, which may be of a sandbox that is stopped already. Returns its MB."""
    return -(-await memory_of(backend, sandbox).suspend(handle) // _MB)


async def stop_as_before(backend: Backend, sandbox: Sandbox, handle: Handle) -> None:
    """Stop what was to go on and may not, and keep what runs if it was kept before."""
    if sandbox.terms.memory_mb and can_keep(backend, sandbox):
        await stop_keeping(backend, sandbox, handle)
    elif isinstance(backend, Stops):
        await backend.stop(handle)


async def stop_at_end(backend: Backend, sandbox: Sandbox, handle: Handle) -> int:
    """Stop it because its time is over. What it was promised to keep is kept if that is possible: it ends
    either way. Returns the MB that are kept.
    """
    if sandbox.promises.memory_at_end and can_keep(backend, sandbox):
        try:
            return await stop_keeping(backend, sandbox, handle)
        except SandboxerError as error:
            log.warning("what runs in %s is not kept: %s", sandbox.id, error)
    if isinstance(backend, Stops):
        await backend.stop(handle)
    return 0


async def found_kept(backend: Backend, sandbox: Sandbox) -> int:
    """Return the MB that are kept of one that is found stopped: a crash may have cut off the record of it."""
    if sandbox.handle is None or not can_keep(backend, sandbox):
        return 0
    return await stop_keeping(backend, sandbox, sandbox.handle)


def remembered(sandbox: Sandbox, memory_mb: int) -> Mapping[str, object]:
    """Return the change of the record for what is kept of its memory."""
    if sandbox.terms.memory_mb == memory_mb:
        return {}
    return {"terms": replace(sandbox.terms, memory_mb=memory_mb)}
