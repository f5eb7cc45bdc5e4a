"""Where a backend keeps what runs, pauses, snapshots and forks of E2B keep it too, through E2B's own SDK."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from e2b import Sandbox
from tests.support.e2b import PATIENT, new_api_key, pointed_at, until_paused
from tests.support.oci import behind_gvisor, remove_leftovers_of
from tests.support.platforms import Up, real_platform
from tests.support.real_backend import state_folder

# `make test-slow` builds runsc first.
pytestmark = pytest.mark.slow

SESSION = """
import socket
x = 42
listener = socket.create_server(("127.0.0.1", 4242))
book = open("/home/user/book", "a+")
book.write("begun "); book.flush()
while True:
    client, _ = listener.accept()
    book.write(client.recv(100).decode() + " "); book.flush(); book.seek(0)
    client.sendall(f"{x} {book.read()}".encode()); client.close()
"""
ASK = (
    "import socket, sys; c = socket.create_connection(('127.0.0.1', 4242));"
    " c.sendall(sys.argv[1].encode()); print(c.recv(1000).decode())"
)


@pytest.fixture(scope="module")
def strong() -> Iterator[Up]:
    with state_folder() as state:
        settings = behind_gvisor(state, "profile.e2b", of="e2b")
        told = {f"SANDBOXER_{name.upper()}": str(value) for name, value in settings.items()}
        told["SANDBOXER_BACKENDS"] = "ext.namespaces,ext.oci"
        with (
            real_platform(state, settings={"SANDBOXER_CHARGING": "false", **PATIENT, **told}) as running,
            pointed_at(running, new_api_key(running)),
        ):
            yield running
        remove_leftovers_of(state)


def begun(**how: object) -> Sandbox:
    sandbox = Sandbox.create(timeout=600, allow_internet_access=False, **how)
    sandbox.files.write("session.py", SESSION)
    sandbox.commands.run("python3 session.py", background=True)
    sandbox.commands.run("while ! test -s book; do sleep 0.05; done")
    return sandbox


def told(sandbox: Sandbox, word: str) -> str:
    return sandbox.commands.run(f'python3 -c "{ASK}" {word}').stdout.strip()


def test_what_runs_goes_on_after_a_pause(strong: Up) -> None:
    with begun() as sandbox:
        assert sandbox.pause()
        found = httpx.get(
            f"{strong.url}/e2b/sandboxes/{sandbox.sandbox_id}",
            headers={"X-API-Key": sandbox.connection_config.api_key or ""},
            trust_env=False,
        ).json()
        assert (found["state"], found["pauseMode"]) == ("paused", "full")
        sandbox.connect(timeout=120)
        assert told(sandbox, "resumed") == "42 begun resumed"


def test_a_pause_that_keeps_files_alone_is_one_and_so_is_a_connection_that_begins_anew(strong: Up) -> None:
    for ends in (lambda one: one.pause(mode="filesystem"), lambda one: one.pause()):
        with begun() as sandbox:
            ends(sandbox)
            sandbox.connect(timeout=120, on_resume="reboot")
            assert sandbox.files.read("book") == "begun "
            assert sandbox.commands.run("pgrep -f '[s]ession.py' || echo ended").stdout == "ended\n"


def test_forks_and_what_is_made_of_a_snapshot_go_on(strong: Up) -> None:
    with begun() as sandbox:
        kept = sandbox.create_snapshot()
        forks = sandbox.fork(timeout=60, count=3)
        made = Sandbox.create(kept.snapshot_id, timeout=60, allow_internet_access=False)
        for number, one in enumerate([*forks, made, sandbox]):
            assert isinstance(one, Sandbox)
            assert told(one, f"copy{number}") == f"42 begun copy{number}"
        for one in (*forks, made):
            one.kill()
        assert Sandbox.delete_snapshot(kept.snapshot_id)


def test_what_is_paused_at_its_end_goes_on_when_it_is_used(strong: Up) -> None:
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    with begun(lifecycle=lifecycle) as sandbox:
        sandbox.set_timeout(1)
        until_paused(sandbox)
        assert told(sandbox, "woken") == "42 begun woken"
