"""Keeps the warm pool full, one sandbox at a time and only while nobody waits for a create."""

from __future__ import annotations

import logging
from datetime import timedelta

from sandboxer.sandboxes.operations import LONG
from sandboxer.sandboxes.room import Room

log = logging.getLogger(__name__)
# After a failure (a full host, say), how long to leave it.
PAUSE = timedelta(seconds=10)


async def keep_filled(room: Room) -> None:
    while True:
        await room.warm.call()
        while (kind := room.warm.missing()) is not None:
            await room.operations.quiet(LONG)
            try:
                await room.warm.make(kind)
            except Exception as error:
                # An outermost loop: without warm sandboxes the platform is slower, not broken.
                log.warning("could not make a warm sandbox: %r", error)
                await room.clock.sleep(PAUSE)
