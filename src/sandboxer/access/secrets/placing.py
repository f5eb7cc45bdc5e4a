"""Secrets as files inside: in memory (/dev/shm), never on the disk, which is kept and copied.

/run is part of a sandbox's disk, so /run/secrets is a link into memory; a snapshot keeps the link alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping

from sandboxer.backends.guest import Command, Exit, FileKind, Guest
from sandboxer.kernel.errors import Conflict, PathNotFound

FOLDER = "/run/secrets"
# Where they really are: the only memory that every sandbox has mounted.
_MEMORY = "/dev/shm/secrets"
_LINK_S = 10.0
# A folder somebody made there is theirs: taken only if it is empty.
_MAKE_LINK = f"""
[ "$(readlink {FOLDER})" = {_MEMORY} ] && exit 0
mkdir -p /run && {{ [ ! -d {FOLDER} ] || [ -L {FOLDER} ] || rmdir {FOLDER}; }} && ln -sfn {_MEMORY} {FOLDER}
"""


async def place(guest: Guest, values: Mapping[str, bytes]) -> None:
    """Each a file of its own, read by root inside only. Raises Conflict if /run/secrets is something else."""
    await guest.files.mkdir(_MEMORY, mode=0o700)
    for name, data in values.items():
        await guest.files.write(f"{_MEMORY}/{name}", _whole(data), mode=0o400)
    if not await _is_linked(guest):
        await _link(guest)


async def unplace(guest: Guest, names: Iterable[str]) -> None:
    """Not there is success."""
    for name in names:
        try:
            await guest.files.remove(f"{_MEMORY}/{name}")
        except PathNotFound:
            continue


async def _is_linked(guest: Guest) -> bool:
    try:
        found = await guest.files.stat(FOLDER, follow=False)
    except PathNotFound:
        return False
    return found.kind is FileKind.SYMLINK and found.link_target == _MEMORY


async def _link(guest: Guest) -> None:
    """By a command: the supervisor makes no links."""
    command = Command(argv=("/bin/sh", "-c", _MAKE_LINK), env={"PATH": "/usr/bin:/bin"}, keep=False)
    code = -1
    try:
        async with asyncio.timeout(_LINK_S), await guest.run(command) as process:
            async for item in process.output():
                if isinstance(item, Exit):
                    code = item.code
    except TimeoutError:
        pass
    if code != 0:
        raise Conflict(
            why=f"{FOLDER} in the sandbox could not become a link into memory",
            hint=f"Move away what is in {FOLDER}, or inject as environment.",
        )


async def _whole(data: bytes) -> AsyncIterator[bytes]:
    yield data
