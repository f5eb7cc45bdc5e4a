"""A platform that tells of things without end, until it is killed. Run by `forking`, with its folder and
database."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from sqlalchemy import Connection

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.observe.events import record
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform


async def tell_of(platform: Platform, number: int) -> None:
    now = platform.clock.now()

    def tell(conn: Connection) -> None:
        record(conn, subject="owner", kind="thing.done", actor="t", reason=str(number), at=now)

    await platform.store.write(tell)


async def main(state_dir: str, database: str) -> None:
    settings = Settings(state_dir=Path(state_dir), database=database, webhook_allow_private=True)
    backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
    async with open_platform(settings, backends=backends) as platform:  # type: ignore[arg-type]
        for number in range(100_000):
            await tell_of(platform, number)
            # A backlog of thousands would only make the test long.
            await asyncio.sleep(0.02)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
