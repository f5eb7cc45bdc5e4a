"""The private PostgreSQL works and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psycopg
import pytest

from tests.support.postgres import running_postgres, why_no_postgres

needs_postgres = pytest.mark.skipif(bool(why_no_postgres()), reason=why_no_postgres() or "")


@needs_postgres
def test_the_server_takes_new_databases_and_leaves_no_folder_behind() -> None:
    with running_postgres() as url, psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE other")
        folder = connection.execute("SHOW data_directory").fetchone()
        assert folder is not None
        assert os.path.isdir(folder[0])
    assert not os.path.exists(os.path.dirname(folder[0]))


@needs_postgres
def test_the_server_ends_when_the_test_run_is_killed() -> None:
    script = (
        "from tests.support.postgres import running_postgres\nimport time\n"
        "with running_postgres() as url:\n    print(url, flush=True)\n    time.sleep(600)\n"
    )
    run = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert run.stdout is not None
    url = run.stdout.readline().strip()
    with psycopg.connect(url) as connection:
        folder = connection.execute("SHOW data_directory").fetchone()
    run.send_signal(signal.SIGKILL)
    run.wait()
    run.stdout.close()
    deadline = time.monotonic() + 20
    while _answers(url):
        assert time.monotonic() < deadline, "PostgreSQL outlived its test run"
        time.sleep(0.05)
    assert folder is not None
    subprocess.run(["rm", "-rf", os.path.dirname(folder[0])], check=True)


def _answers(url: str) -> bool:
    try:
        psycopg.connect(url, connect_timeout=2).close()
    except psycopg.OperationalError:
        return False
    return True
