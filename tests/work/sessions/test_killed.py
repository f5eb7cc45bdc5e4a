"""A server killed with -9: interpreters live on with what they know, and every limit holds as before."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandboxer.sdk.errors import ApiError
from tests.support.jobs import client, kill
from tests.support.platforms import end_everything, free_port, start_server, why_not_real


def until(is_so: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "it never came about"
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_after_a_kill_interpreters_know_what_they_knew_and_their_limits_hold(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    port, state_dir = free_port(), tmp_path / "state"
    up, server = start_server(state_dir, port, pool_mb=800)
    small = {"disk_mb": 64, "memory_mb": 256}
    try:
        with client(up) as platform:
            kept = platform.sessions.start("python", resources=small)
            asleep = platform.sessions.start("bash", resources=small)
            short = platform.sessions.start("python", resources=small, idle="15s")
            assert kept.run("x = 42").status == "ok"
            assert asleep.run("y=7").status == "ok"
            asleep.freeze()
            endless = kept.submit("while True: pass", timeout_s=8)
        kill(server)
        up, server = start_server(state_dir, port, pool_mb=800)
        with client(up) as platform:
            # Its time limit is kept by whoever serves now, and what it knew before is still known.
            again = platform.sessions.get(kept.id)
            until(lambda: again.cell(endless.n).status != "running")
            assert again.cell(endless.n).status == "timed_out"
            assert again.run("x").results == [{"text/plain": "42"}]
            assert platform.sessions.get(asleep.id).info.state == "frozen"
            platform.sessions.get(asleep.id).thaw()
            assert platform.sessions.get(asleep.id).run("echo $y").stdout == "7\n"
            # Memory: the walls were never down.
            hungry = again.run("b = bytearray(1 << 30)")
            assert hungry.status in ("error", "died"), hungry
            # Its quiet minutes count on.
            until(lambda: platform.sessions.get(short.id).info.state == "ended", 90)
            with pytest.raises(ApiError, match="has ended"):
                platform.sessions.get(short.id).run("1")
    finally:
        end_everything(up, server)
