"""A server killed with -9: its services run on, are found again, and none is started twice."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.support.platforms import end_everything, free_port, start_server, why_not_real
from tests.support.services import APP


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_a_kill_services_are_found_again_and_none_is_started_twice(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    port, state_dir = free_port(), tmp_path / "state"
    up, server = start_server(state_dir, port)
    try:
        with Sandboxer(owner_file=up.owner_file, url=up.url) as platform:
            made = platform.services.create(
                "hello",
                command="exec python3 app.py",
                files={"app.py": APP},
                health={"path": "/", "interval_s": 0.5},
                resources={"disk_mb": 64, "memory_mb": 128},
            )
            assert made.state == "running"
            asleep = platform.services.create(
                "asleep", command="exec python3 -m http.server $PORT", resources={"disk_mb": 64}
            )
            assert platform.services.freeze("asleep").state == "sleeping"
        server.kill()
        server.wait(30)
        up, server = start_server(state_dir, port)
        with Sandboxer(owner_file=up.owner_file, url=up.url) as platform:
            deadline = time.monotonic() + 20
            # Its health is asked for again, and what it prints is in the log again, once.
            while len(platform.services.logs("hello")) <= 4:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            found = platform.services.get("hello")
            assert (found.state, found.run, found.port) == ("running", 1, made.port)
            counted = platform.sandbox(made.sandbox_id).exec("pgrep -fc '^python3 app.py'")
            assert counted.stdout == "1\n"
            texts = [line.text for line in platform.services.logs("hello", tail=1000)]
            assert texts.count("listening on 8080") == 1
            assert platform.services.get("asleep").state == "sleeping"
            assert platform.services.thaw("asleep").state == "running"
            assert platform.services.get("asleep").run == asleep.run
            platform.services.remove("hello")
            platform.services.remove("asleep")
    finally:
        end_everything(up, server)
