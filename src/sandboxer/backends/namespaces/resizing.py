"""Other limits for a sandbox that runs: promised first, then written; taken back if the kernel refuses."""

from __future__ import annotations

from dataclasses import replace

from sandboxer.backends.contract import Resources
from sandboxer.backends.namespaces import admission
from sandboxer.backends.namespaces.box import Box
from sandboxer.backends.namespaces.ground import Ground
from sandboxer.backends.namespaces.settled import in_thread
from sandboxer.kernel.errors import BackendLost, Conflict, InvalidRequest


async def resize_box(ground: Ground, box: Box, resources: Resources) -> None:
    if not ground.has_processes(box):
        raise BackendLost(why="the sandbox is not running")
    before = box.resources
    if resources == before:
        return
    if resources.disk_mb != before.disk_mb:
        raise InvalidRequest(field="disk_mb", why="a disk keeps its size")
    _promise(ground, before, resources)
    try:
        # The record first: whoever reads it after a crash must not promise twice what is already used.
        _note(ground, box, resources)
        await in_thread(ground.threads, ground.cgroups.resize, box.sandbox_id, resources)
    except OSError as error:
        _take_back(ground, before, resources)
        _note(ground, box, before)
        await in_thread(ground.threads, ground.cgroups.resize, box.sandbox_id, before)
        raise Conflict(
            why="it uses more memory than it would have",
            reason="memory_in_use",
            hint="Let it use less first, or leave it as it is.",
        ) from error


def _promise(ground: Ground, before: Resources, after: Resources) -> None:
    """Raises NoCapacity. Less than before is never refused, however full the host is."""
    wanted = ground.promised.with_running(before, -1).with_running(after)
    grows = after.vcpus > before.vcpus or after.memory_mb > before.memory_mb or after.pids > before.pids
    if grows:
        admission.check_single(ground.host, after)
        admission.admit(ground.host, ground.settings.overcommit, wanted)
    ground.promised = wanted


def _take_back(ground: Ground, before: Resources, after: Resources) -> None:
    ground.promised = ground.promised.with_running(after, -1).with_running(before)


def _note(ground: Ground, box: Box, resources: Resources) -> None:
    changed = replace(
        ground.known[box.sandbox_id],
        vcpus=resources.vcpus,
        memory_mb=resources.memory_mb,
        pids=resources.pids,
    )
    ground.known[box.sandbox_id] = changed
    ground.boxes.write(changed)
