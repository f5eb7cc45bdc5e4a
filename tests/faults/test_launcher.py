"""A launcher that hangs: it is told, replaced, and nothing that lives notices."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.faults.platforms import served
from tests.support.platforms import destroy_everything, remove_leftovers, why_not_real

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_not_real() is not None, reason=str(why_not_real())),
]


def launcher_of(server: int) -> int:
    children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
    for thread in Path(f"/proc/{server}/task").iterdir():
        children += (thread / "children").read_text().split()
    for pid in map(int, children):
        if os.readlink(f"/proc/{pid}/exe").endswith("/launcher"):
            return pid
    raise AssertionError("no launcher")


def test_a_launcher_that_hangs_is_replaced_and_living_sandboxes_go_on(tmp_path: Path) -> None:
    state = tmp_path / "state"
    try:
        with served(
            state, log=tmp_path / "log", more={"SANDBOXER_POOL_SIZE_MB": "3072"}, is_real=True
        ) as platform:
            client = Sandboxer(owner_file=platform.up.owner_file, url=platform.up.url)
            living = client.create()
            living.exec("sleep 1000 & echo $! > /tmp/pid")
            hung = launcher_of(platform.process.pid)
            os.kill(hung, signal.SIGSTOP)
            seen = platform.wait_for(503)
            assert seen["checks"]["ext.namespaces/launcher"] == "failing"  # type: ignore[index]
            # A sandbox that was made before needs no launcher.
            assert living.exec("echo alive").stdout == "alive\n"
            platform.wait_for(200, within_s=40)
            assert launcher_of(platform.process.pid) != hung
            assert living.exec("kill -0 $(cat /tmp/pid) && echo alive").stdout == "alive\n"
            assert client.create().exec("echo new").stdout == "new\n"
            # One that hangs does not keep the server from ending either.
            os.kill(launcher_of(platform.process.pid), signal.SIGSTOP)
            began = time.monotonic()
            destroy_everything(platform.up)
            platform.stop(within_s=30)
            assert time.monotonic() - began < 30
    finally:
        remove_leftovers(state)
