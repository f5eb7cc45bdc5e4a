from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxer.kernel.errors import Conflict
from sandboxer.store.engine import open_store
from sandboxer.store.lock import hold_database, hold_state_dir, make_private

_HOLD = """
import sys
from pathlib import Path
from sandboxer.store.lock import hold_state_dir
with hold_state_dir(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_server_on_one_state_folder_is_refused_until_the_first_is_killed(tmp_path: Path) -> None:
    first = subprocess.Popen(
        [sys.executable, "-c", _HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert first.stdin is not None
    assert first.stdout is not None
    assert first.stdout.readline() == b"held\n"
    with pytest.raises(Conflict, match=f"process {first.pid}"), hold_state_dir(tmp_path):
        pass
    first.kill()
    first.wait()
    with hold_state_dir(tmp_path):
        pass
    first.stdin.close()
    first.stdout.close()


def test_a_child_that_outlives_the_server_does_not_hold_the_lock(tmp_path: Path) -> None:
    with hold_state_dir(tmp_path):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with hold_state_dir(tmp_path):
            assert (tmp_path / "lock").read_text().split()[0] == str(os.getpid())
    finally:
        child.kill()
        child.wait()


async def test_a_second_server_on_one_database_is_refused_but_other_programs_are_not(
    database_url: str,
) -> None:
    with hold_database(database_url):
        with pytest.raises(Conflict, match="this database"), hold_database(database_url):
            pass
        # A backup or an inspection may look while the server runs.
        await open_store(database_url).close()
    with hold_database(database_url):
        pass


def test_a_folder_with_nothing_but_an_image_is_closed_without_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "images").mkdir()
    make_private(tmp_path)
    assert (tmp_path.stat().st_mode & 0o777, caplog.text) == (0o700, "")
    tmp_path.chmod(0o755)
    (tmp_path / "owner.json").touch()
    make_private(tmp_path)
    assert "was open to others" in caplog.text
