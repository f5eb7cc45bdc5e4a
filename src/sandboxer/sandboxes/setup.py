"""Runs one of a profile's setup commands inside a sandbox that is being made."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from sandboxer.backends.guest import Command, Exit, Guest, Output, Stream
from sandboxer.kernel.errors import ProvisionFailed

TIMEOUT_S = 600
MAX_OUTPUT_BYTES = 1024 * 1024


async def run_setup(guest: Guest, command: str, environment: Mapping[str, str]) -> bytes:
    """What it printed (bounded). Raises ProvisionFailed with the end of its stderr unless it exits 0."""
    printed = {Stream.STDOUT: bytearray(), Stream.STDERR: bytearray()}
    order = Command(argv=("/bin/sh", "-c", command), env=dict(environment))
    try:
        async with asyncio.timeout(TIMEOUT_S), await guest.run(order) as process:
            end = None
            async for item in process.output():
                if isinstance(item, Exit):
                    end = item
                else:
                    _keep(printed, item)
        await guest.forget(process.process_id)
    except TimeoutError:
        raise ProvisionFailed(step="setup", why=f"a command took longer than {TIMEOUT_S} s") from None
    if end is None or end.code != 0:
        tail = printed[Stream.STDERR][-400:].decode("utf-8", "replace").strip()
        code = "none" if end is None else end.code
        raise ProvisionFailed(step="setup", why=f"a command exited with {code}: {tail}")
    return bytes(printed[Stream.STDOUT])


def _keep(printed: dict[Stream, bytearray], item: Output) -> None:
    kept = printed[item.stream]
    room = MAX_OUTPUT_BYTES - len(kept)
    kept += item.data[:room]
