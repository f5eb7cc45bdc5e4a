"""A platform killed with -9 in mid-delivery: after its next start, everything it answered for is told."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from pathlib import Path

from sqlalchemy import select

from sandboxer.backends.scripted.backend import Scripted
from sandboxer.observe.events import events
from sandboxer.sdk.webhooks import verify
from sandboxer.settings import Settings
from sandboxer.wiring import open_platform
from tests.http.conftest import eventually
from tests.observe.webhooks.receivers import GOOD, Receiver, receiver, status

_SERVE = """
import asyncio, sys
from pathlib import Path
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.observe.events import record
from sandboxer.settings import Settings
from sandboxer.wiring import open_platform

async def main(state_dir, database):
    settings = Settings(state_dir=Path(state_dir), database=database, webhook_allow_private=True)
    backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
    async with open_platform(settings, backends=backends) as platform:
        for number in range(100_000):
            def tell(conn):
                now = platform.clock.now()
                record(conn, subject="owner", kind="thing.done", actor="t", reason=str(number), at=now)
            await platform.store.write(tell)
            # A backlog of thousands would only make the test long.
            await asyncio.sleep(0.02)

asyncio.run(main(*sys.argv[1:]))
"""


async def serve_until_killed(state_dir: Path, database: str, there: Receiver, after: int) -> None:
    """Killed as soon as that many more messages have come, wherever it stands then."""
    wanted = len(there.got) + after
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _SERVE, str(state_dir), database, stdout=asyncio.subprocess.DEVNULL
    )
    try:
        await eventually(lambda: len(there.got) >= wanted or child.returncode is not None, seconds=60)
        assert child.returncode is None, "it ended by itself"
    finally:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()


async def test_killed_in_mid_delivery_it_tells_all_the_same(tmp_path: Path, database_url: str) -> None:
    settings = Settings(state_dir=tmp_path / "state", database=database_url, webhook_allow_private=True)
    backends = {"ext.namespaces": Scripted(name="ext.namespaces")}
    async with receiver(lambda number: status(500) if number == 3 else GOOD) as there:
        async with open_platform(settings, backends=backends) as platform:
            _, secret = await platform.webhooks.create(
                "owner", there.url, kinds=["thing.done"], hears_all=False, actor="t"
            )
        for after in (1, 3, 9):
            await serve_until_killed(settings.state_dir, database_url, there, after)
        there.answer = lambda number: GOOD
        async with open_platform(settings, backends=backends) as platform:
            query = select(events.c.id).where(events.c.kind == "thing.done")
            ids = await platform.store.read(lambda conn: list(conn.execute(query).scalars()))
            wanted = {f"evt_{id}" for id in ids}
            # Of thirteen that came, one was refused and three may have been cut short by a kill.
            assert len(wanted) >= 9
            await eventually(lambda: wanted <= set(there.ids), seconds=90)
        assert set(there.ids) == wanted
        for one in there.got:
            verify(secret, one.headers, one.body)
