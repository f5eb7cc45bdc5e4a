"""Starting and ending the processes of a service inside its sandbox."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping

from sandboxer.backends.guest import Guest, ProcessInfo
from sandboxer.kernel.errors import PathNotFound, SandboxerError
from sandboxer.sandboxes.access import RESIDENT_TAG
from sandboxer.work.commands import SHELLS, WORKSPACE, Wanted, launch
from sandboxer.work.processes import end_process
from sandboxer.work.services.records import Service

# Whatever has such an id was started by us.
PREFIX = "svp"
_FOLDER = "/var/lib/sandboxer/services"
# How often we look whether a process that was asked to end has.
_GLANCE_S = 0.05


async def start(
    guest: Guest,
    service: Service,
    *,
    process_id: str,
    port: int,
    sandbox_env: Mapping[str, str],
    secrets: Mapping[str, str],
) -> None:
    """Under exactly this id: a second start of the same is refused by the supervisor inside."""
    spec = service.spec
    if spec.cwd is None:
        await guest.files.mkdir(WORKSPACE)
    own = {"PORT": str(port), "SANDBOXER_SERVICE": service.name}
    wanted = Wanted(
        # Words and folder are settled here: a second try of `launch` would take another id.
        argv=await _argv(guest, service),
        cwd=spec.cwd or WORKSPACE,
        user=spec.user,
        env={**spec.env, **secrets, **own},
    )
    async with await launch(guest, wanted, sandbox_env, tag=RESIDENT_TAG, process_id=process_id):
        return


async def _argv(guest: Guest, service: Service) -> tuple[str, ...]:
    spec = service.spec
    shell = await _shell(guest)
    if spec.bootstrap is None:
        return (shell, "-c", spec.command or "")
    path = f"{_FOLDER}/{service.name}-{service.run}"
    await guest.files.write(path, _whole(spec.bootstrap.encode()), mode=0o755)
    # A script says by its first line who runs it; without one it is a shell's.
    return (path,) if spec.bootstrap.startswith("#!") else (shell, path)


async def _shell(guest: Guest) -> str:
    try:
        await guest.files.stat(SHELLS[0])
    except PathNotFound:
        return SHELLS[1]
    return SHELLS[0]


async def ours(guest: Guest) -> Mapping[str, ProcessInfo]:
    return {i.process_id: i for i in await guest.processes() if i.process_id.startswith(f"{PREFIX}_")}


async def end(guest: Guest, process_id: str, *, patience_s: float) -> None:
    """Ask it to end, wait, then kill everything it started. Ended already, or unknown, is success."""
    info = (await ours(guest)).get(process_id)
    if info is not None and info.exit is None:
        await _ask_to_end(guest, process_id)
    deadline = asyncio.get_running_loop().time() + patience_s
    while (info := (await ours(guest)).get(process_id)) is not None:
        if info.exit is not None or asyncio.get_running_loop().time() >= deadline:
            await end_process(guest, info)
            return
        await asyncio.sleep(_GLANCE_S)


async def end_others(guest: Guest, process_id: str | None) -> None:
    """What a redeploy that was cut short has left behind."""
    for info in (await ours(guest)).values():
        if info.process_id != process_id and info.exit is None:
            await end_process(guest, info)


async def _ask_to_end(guest: Guest, process_id: str) -> None:
    try:
        async with await guest.attach(process_id) as process:
            await process.signal(signal.SIGTERM)
    except SandboxerError:
        # It ended in between; the caller looks.
        return


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
