"""`up -d` and `down` as an operator runs them: one process, found by what it is and not by its number."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from rich.text import Text

from sandboxer.edges.cli import background, up
from sandboxer.kernel.errors import Conflict
from sandboxer.settings import load_settings
from sandboxer.store.lock import hold_state_dir, is_held, open_holder
from tests.support.background import Host

HOLD = """
import sys
from pathlib import Path
from sandboxer.store.lock import hold_state_dir
with hold_state_dir(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def address(said: str) -> str:
    return next(word for word in said.split() if word.startswith("http://127"))


def test_up_returns_when_it_serves_and_down_ends_it(host: Host) -> None:
    begun = host("up", "-d", SANDBOXER_SSH_LISTEN="127.0.0.1:0")
    assert begun.returncode == 0, begun.stderr
    url = address(begun.stdout)
    assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
    for told in ("ports:", "ssh:", "key:", "next:", str(host.state / background.LOG)):
        assert told in begun.stdout
    found = open_holder(host.state)
    assert found is not None
    pid, process = found
    os.close(process)
    # The terminal it was started from may close: the process is in a session of its own and reads nothing.
    assert os.getsid(pid) == pid
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull
    assert os.stat(host.state / background.LOG).st_mode & 0o077 == 0
    second = host("up", "-d")
    assert second.returncode == 1
    assert f"process {pid}" in second.stderr
    assert "sandboxer down" in second.stderr
    assert host("down", "--timeout", "60").returncode == 2
    ended = host("down", "--timeout", "1m")
    assert ended.returncode == 0, ended.stderr
    assert f"process {pid}" in ended.stdout
    assert not is_held(host.state)
    assert "No platform" in host("down").stdout


def test_without_a_base_image_the_next_step_is_to_get_one(tmp_path: Path) -> None:
    settings = load_settings(state_dir=tmp_path)
    steps = [Text.from_markup(step).plain for step in up._next_steps(settings)]
    assert [step.split("  ")[0] for step in steps] == [
        f"sudo sandboxer image build base --state-dir {tmp_path}",
        f"sudo sandboxer image load FILE --state-dir {tmp_path}",
    ]
    (settings.images_dir / "base").mkdir(parents=True)
    (settings.images_dir / "base/image.json").touch()
    assert list(up._next_steps(settings)) == [f"sandboxer create --state-dir {tmp_path}"]


def test_a_start_that_fails_shows_why(host: Host) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        failed = host("up", "-d", "--port", str(taken.getsockname()[1]))
    assert failed.returncode == 1
    assert "in use" in failed.stderr
    assert str(host.state / background.LOG) in failed.stderr


def test_a_process_with_a_known_number_is_not_taken_for_the_server(tmp_path: Path) -> None:
    """The number in the lock is a bystander's: of a server in a container, or of one that ended."""
    with subprocess.Popen(["sleep", "100"]) as bystander:
        try:
            with hold_state_dir(tmp_path):
                mine = (tmp_path / "lock").read_text().split()
                (tmp_path / "lock").write_text(f"{bystander.pid} {int(mine[1]) - 1}\n")
                with pytest.raises(Conflict, match="no process that can be seen"):
                    background.stop(tmp_path, 1)
            assert bystander.poll() is None
            # Nobody holds it any more: what is written there means nothing.
            assert background.stop(tmp_path, 1) is None
            assert bystander.poll() is None
        finally:
            bystander.kill()


def test_down_waits_until_it_has_ended(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"held\n"
        assert background.stop(tmp_path, 30) == server.pid
        assert server.wait(0.1) != 0
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.parametrize("address", ["@sandboxer-test-{}", "{}/notify"])
def test_systemd_is_told_that_it_serves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    where = address.format(os.getpid() if address[0] == "@" else tmp_path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + where[1:] if where[0] == "@" else where)
        monkeypatch.setenv("NOTIFY_SOCKET", where)
        background.tell_ready({"api": "http://127.0.0.1:7777"})
        assert systemd.recv(1000).startswith(b"READY=1\n")
    # No process inside a sandbox gets to know where systemd listens.
    assert "NOTIFY_SOCKET" not in os.environ
