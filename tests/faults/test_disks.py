"""Disks that are full, read-only or gone: `/health` and `doctor` say so, and see it when they are back."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from sandboxer.sdk.sync.client import Sandboxer
from tests.faults.mounts import device_of, fill, make_read_only, run, small_ext4, small_tmpfs
from tests.faults.platforms import Served, served
from tests.support.platforms import IMAGES, ROOT, destroy_everything, remove_leftovers, why_not_real

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def failing(seen: dict[str, object]) -> set[str]:
    checks = seen["checks"]
    assert isinstance(checks, dict)
    return {name for name, check in checks.items() if check == "failing"}


def doctor(state_dir: Path) -> tuple[int, dict[str, object]]:
    words = [sys.executable, "-m", "sandboxer.edges.cli.main", "doctor", "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SANDBOXER_")}
    environment["SANDBOXER_IMAGES_DIR"] = str(IMAGES)
    done = subprocess.run(
        [*words, "--state-dir", str(state_dir)], env=environment, cwd=ROOT, capture_output=True, check=False
    )
    return done.returncode, json.loads(done.stdout)


def test_a_full_state_disk_is_told_and_so_is_its_end(tmp_path: Path) -> None:
    with (
        small_tmpfs(tmp_path / "state", size_mb=48) as state,
        served(state, log=tmp_path / "log") as platform,
    ):
        platform.wait_for(200)
        ballast = fill(state)
        began = time.monotonic()
        seen = platform.wait_for(503)
        assert time.monotonic() - began < 10
        assert {"state", "nonces"} <= failing(seen), seen
        ballast.unlink()
        platform.wait_for(200)
        platform.stop(within_s=30)


def test_a_state_disk_that_turned_read_only_is_told_by_health_and_doctor(tmp_path: Path) -> None:
    with (
        small_ext4(tmp_path / "state", size_mb=96) as state,
        served(state, log=tmp_path / "log") as platform,
    ):
        platform.wait_for(200)
        make_read_only(state)
        seen = platform.wait_for(503)
        assert {"store", "state", "nonces"} <= failing(seen), seen
        code, said = doctor(state)
        assert (code, said["healthy"]) == (1, False)
        assert platform.stop(within_s=30) < 15


def test_many_who_ask_for_health_cost_one_look(tmp_path: Path) -> None:
    with served(tmp_path / "state", log=tmp_path / "log") as platform:
        platform.wait_for(200)
        before = _writes(platform)
        began = time.monotonic()
        for _ in range(200):
            assert platform.health().status_code == 200
        looks = time.monotonic() - began + 2
        # The watch of the store writes nothing; each look writes one row.
        assert _writes(platform) - before <= looks
        platform.stop(within_s=30)


def _writes(platform: Served) -> int:
    with closing(sqlite3.connect(platform.up.state_dir / "sandboxer.db")) as conn:
        return int(conn.execute("SELECT probes FROM server_claim").fetchone()[0])


@pytest.mark.slow
@pytest.mark.skipif(why_not_real() is not None, reason=str(why_not_real()))
def test_a_pool_that_was_unmounted_is_told_by_health_and_doctor(tmp_path: Path) -> None:
    state = tmp_path / "state"
    more = {"SANDBOXER_POOL_SIZE_MB": "3072"}
    try:
        with served(state, log=tmp_path / "log", more=more, is_real=True) as platform:
            platform.wait_for(200)
            device = device_of(state / "pool")
            run("umount", "-l", str(state / "pool"))
            seen = platform.wait_for(503)
            assert failing(seen) == {"ext.namespaces", "ext.namespaces/pool"}
            code, said = doctor(state)
            assert (code, said["healthy"]) == (1, False)
            assert "pool" in json.dumps(said["lacks"])
            run("mount", device, str(state / "pool"))
            platform.wait_for(200)
            with Sandboxer(owner_file=platform.up.owner_file, url=platform.up.url) as client:
                assert client.create().exec("echo here").stdout == "here\n"
            destroy_everything(platform.up)
            platform.stop(within_s=30)
    finally:
        remove_leftovers(state)
