"""What runs in a sandbox can be kept when it stops, if its backend does that: it goes on when it is resumed.

What is kept costs as much as disk (`Terms.memory_mb`), from the step that records it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from sandboxer.backends.contract import Handle, KeepsMemory, Stops
from sandboxer.kernel.errors import Conflict, NotAvailable, SandboxerError
from sandboxer.sandboxes.dependencies import SandboxDependencies
from sandboxer.sandboxes.lifecycle import LIVE, State
from sandboxer.sandboxes.records import Sandbox

log = logging.getLogger(__name__)
ACTOR = "system:memory"
_MB = 1024 * 1024


def memory_of(dependencies: SandboxDependencies, sandbox: Sandbox) -> KeepsMemory:
    """Return what keeps what runs in it. Raises NotAvailable where nothing does, and Conflict for what could
    not go on, or must not lie on a disk.
    """
    backend = dependencies.backend_of(sandbox)
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
    if dependencies.holds_secrets(sandbox):
        raise Conflict(
            why="it was given secrets, which are in its memory and on no disk",
            reason="memory_of_secrets",
            hint="Keep its files alone.",
        )
    return backend


def can_keep(dependencies: SandboxDependencies, sandbox: Sandbox) -> bool:
    """Return whether what runs in it can be kept."""
    backend = dependencies.backends.get(sandbox.backend)
    is_able = isinstance(backend, KeepsMemory) and not _has_mounts(sandbox)
    return is_able and not dependencies.holds_secrets(sandbox)


def can_be_kept_now(sandbox: Sandbox) -> bool:
    """Return whether anything runs in it, or was kept when it stopped."""
    return sandbox.state in LIVE or (sandbox.state is State.STOPPED and sandbox.terms.memory_mb > 0)


def _has_mounts(sandbox: Sandbox) -> bool:
    return bool(sandbox.volumes or sandbox.order().folders)


async def stop_keeping(dependencies: SandboxDependencies, sandbox: Sandbox, handle: Handle) -> int:
    """Stop it and keep what runs in it, which may be of a sandbox that is stopped already. Returns its MB."""
    return -(-await memory_of(dependencies, sandbox).suspend(handle) // _MB)


async def stop_as_before(dependencies: SandboxDependencies, sandbox: Sandbox, handle: Handle) -> None:
    """Stop what was to go on and may not, and keep what runs if it was kept before and can be."""
    memory_mb = sandbox.terms.memory_mb
    kept = await _stop(dependencies, sandbox, handle, keeps=memory_mb > 0)
    if kept != memory_mb:
        await dependencies.repository.amend(
            sandbox.id,
            kind="sandbox.terms_changed",
            actor=ACTOR,
            reason="memory_kept" if kept else "memory_ended",
            decide=lambda one: remembered(one, kept),
        )


async def stop_at_end(dependencies: SandboxDependencies, sandbox: Sandbox, handle: Handle) -> int:
    """Stop it because its time is over. What it was promised to keep is kept if that is possible: it ends
    either way. Returns the MB that are kept.
    """
    return await _stop(dependencies, sandbox, handle, keeps=sandbox.promises.memory_at_end)


async def _stop(dependencies: SandboxDependencies, sandbox: Sandbox, handle: Handle, *, keeps: bool) -> int:
    if keeps and can_keep(dependencies, sandbox):
        try:
            return await stop_keeping(dependencies, sandbox, handle)
        except SandboxerError as error:
            log.warning("what runs in %s is not kept: %s", sandbox.id, error)
    if isinstance(backend := dependencies.backend_of(sandbox), Stops):
        await backend.stop(handle)
    return 0


async def found_kept(dependencies: SandboxDependencies, sandbox: Sandbox) -> int:
    """Return the MB that are kept of one that is found stopped: a crash may have cut off the record of it."""
    if sandbox.handle is None or not can_keep(dependencies, sandbox):
        return 0
    return await stop_keeping(dependencies, sandbox, sandbox.handle)


def remembered(sandbox: Sandbox, memory_mb: int) -> Mapping[str, object]:
    """Return the change of the record for what is kept of its memory."""
    if sandbox.terms.memory_mb == memory_mb:
        return {}
    return {"terms": replace(sandbox.terms, memory_mb=memory_mb)}
