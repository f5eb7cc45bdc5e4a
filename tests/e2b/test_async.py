"""The same through E2B's asynchronous Python SDK, which follows folders by a stream."""

from __future__ import annotations

import asyncio

from e2b import AsyncSandbox


async def test_several_sandboxes_work_side_by_side(real_key: str) -> None:
    made = await asyncio.gather(
        *(AsyncSandbox.create(timeout=120, allow_internet_access=False) for _ in range(3))
    )
    try:
        done = await asyncio.gather(*(one.commands.run(f"echo {no}") for no, one in enumerate(made)))
        assert [one.stdout for one in done] == ["0\n", "1\n", "2\n"]
        changed = asyncio.Event()
        await made[0].files.make_dir("seen")
        watch = await made[0].files.watch_dir("seen", lambda event: event.name == "new" and changed.set())
        await made[0].files.write("seen/new", "x")
        await asyncio.wait_for(changed.wait(), 20)
        await watch.stop()
        assert await made[0].files.read("seen/new") == "x"
    finally:
        assert await asyncio.gather(*(one.kill() for one in made)) == [True] * 3
