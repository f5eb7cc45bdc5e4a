"""A server killed with -9 while code runs: jobs are found again, runs that nobody waits for are cleared."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest

from sandboxer.sdk.errors import SdkError
from sandboxer.wire.execute import Job
from tests.support.jobs import client, kill, small, until
from tests.support.platforms import (
    Up,
    end_everything,
    free_port,
    start_server,
    why_not_real,
)

COUNT = (
    "import time\nfor n in range(40):\n  print(n, flush=True); time.sleep(0.1)\nopen('end','w').write('x')"
)
C_PROGRAM = (
    '#include <stdio.h>\n#include <unistd.h>\nint main(){puts("a");fflush(stdout);sleep(5);puts("b");}'
)


def run_for_ever(up: Up) -> None:
    with suppress(SdkError), client(up) as platform:
        platform.code.run("import time; time.sleep(600)", language="python", **small(ttl_s=900))


def printed(job: Job) -> str:
    return "" if job.result is None else job.result.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_a_kill_jobs_are_found_again_and_runs_without_a_caller_are_gone(tmp_path: Path) -> None:
    if why := why_not_real():
        pytest.skip(why)
    port, state_dir = free_port(), tmp_path / "state"
    up, server = start_server(state_dir, port)
    try:
        waiting = threading.Thread(target=run_for_ever, args=(up,))
        with client(up) as platform:
            counting = platform.code.submit(COUNT, language="python", **small(artifacts=["end"])).id
            compiled = platform.code.submit(C_PROGRAM, language="c", **small()).id
            endless = "import time; time.sleep(600)"
            forgotten = platform.code.submit(endless, language="python", **small(ttl_s=900)).id
            waiting.start()
            until(lambda: printed(platform.jobs.get(counting)).startswith("0\n1\n"))
            until(lambda: printed(platform.jobs.get(compiled)) == "a\n")
            until(lambda: len(list(platform.list())) == 4)
            lost = platform.jobs.get(forgotten).sandbox_id
            assert lost is not None
        kill(server)
        waiting.join(30)
        up, server = start_server(state_dir, port)
        with client(up) as platform:
            platform.sandbox(lost).destroy()
            done = platform.jobs.wait(counting)
            assert (done.state, done.reason) == ("finished", "exited")
            assert printed(done) == "".join(f"{n}\n" for n in range(40))
            assert done.result is not None
            assert [one.name for one in done.result.artifacts] == ["end"]
            assert printed(platform.jobs.wait(compiled)) == "a\nb\n"
            assert platform.jobs.wait(forgotten).state == "lost"
            until(lambda: not list(platform.list()))
    finally:
        end_everything(up, server)
