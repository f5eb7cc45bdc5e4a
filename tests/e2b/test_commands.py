"""Commands and terminals on real walls, through E2B's own Python SDK."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx
import pytest
from e2b.exceptions import (
    AuthenticationException,
    InvalidArgumentException,
    NotFoundException,
    SandboxNotRunningException,
    TimeoutException,
)

from e2b import CommandExitException, PtySize, Sandbox
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.wire.e2b import api_key_of
from tests.support.platforms import Up


@pytest.fixture(scope="module")
def sandbox(real_key: str) -> Iterator[Sandbox]:
    with Sandbox.create(timeout=600, envs={"GIVEN": "at create"}, allow_internet_access=False) as made:
        yield made


def test_a_command_says_what_it_printed_and_how_it_ended(sandbox: Sandbox) -> None:
    heard: list[str] = []
    done = sandbox.commands.run("echo out; echo err >&2; pwd; echo $HOME $GIVEN", on_stdout=heard.append)
    assert done.stdout == "out\n/home/user\n/home/user at create\n"
    assert done.stderr == "err\n"
    assert done.exit_code == 0
    assert "".join(heard) == done.stdout
    with pytest.raises(CommandExitException) as ended:
        sandbox.commands.run("echo so; exit 3")
    assert (ended.value.exit_code, ended.value.stdout, ended.value.error) == (3, "so\n", "exit status 3")


def test_folder_environment_and_user_are_the_callers(sandbox: Sandbox) -> None:
    assert sandbox.commands.run("pwd; echo $A", cwd="/tmp", envs={"A": "ü b"}).stdout == "/tmp\nü b\n"
    assert sandbox.commands.run("id -un; pwd", user="user").stdout == "user\n/home/user\n"
    assert sandbox.commands.run("id -un; pwd; echo $HOME", user="root").stdout == "root\n/root\n/root\n"
    with pytest.raises(InvalidArgumentException, match="/no/such"):
        sandbox.commands.run("pwd", cwd="/no/such")


def test_one_in_the_background_is_listed_fed_and_waited_for(sandbox: Sandbox) -> None:
    cat = sandbox.commands.run("cat; echo bye", background=True, stdin=True)
    assert cat.pid in [one.pid for one in sandbox.commands.list()]
    sandbox.commands.send_stdin(cat.pid, "one\n")
    sandbox.commands.stream_input(cat.pid, ["two\n", b"three\n"])
    sandbox.commands.close_stdin(cat.pid)
    assert cat.wait().stdout == "one\ntwo\nthree\nbye\n"
    assert cat.pid not in [one.pid for one in sandbox.commands.list()]
    with pytest.raises(NotFoundException):
        sandbox.commands.send_stdin(cat.pid, "more")


def test_one_that_was_left_goes_on_and_is_found_again(sandbox: Sandbox) -> None:
    left = sandbox.commands.run("read line; echo heard $line", background=True, stdin=True)
    left.disconnect()
    again = sandbox.commands.connect(left.pid)
    sandbox.commands.send_stdin(left.pid, "you\n")
    assert again.wait().stdout == "heard you\n"
    with pytest.raises(NotFoundException):
        sandbox.commands.connect(999_999)


def test_a_killed_one_says_so(sandbox: Sandbox) -> None:
    sleeping = sandbox.commands.run("sleep 600", background=True)
    assert sleeping.kill() is True
    with pytest.raises(CommandExitException) as ended:
        sleeping.wait()
    assert (ended.value.exit_code, ended.value.error) == (-1, "signal: killed")
    assert sandbox.commands.kill(sleeping.pid) is False


def test_a_time_limit_ends_the_command_itself(sandbox: Sandbox) -> None:
    with pytest.raises(TimeoutException):
        sandbox.commands.run("sleep 4321", timeout=1)
    deadline = time.monotonic() + 10
    while any("4321" in " ".join(one.args) for one in sandbox.commands.list()):
        assert time.monotonic() < deadline, "it lives on"


def test_a_terminal_is_typed_into_and_resized(sandbox: Sandbox) -> None:
    terminal = sandbox.pty.create(PtySize(rows=24, cols=80))
    sandbox.pty.resize(terminal.pid, PtySize(rows=50, cols=132))
    sandbox.pty.send_stdin(terminal.pid, b"stty size; exit 0\n")
    seen: list[bytes] = []
    assert terminal.wait(on_pty=seen.append).exit_code == 0
    assert b"50 132" in b"".join(seen)


def test_much_output_comes_whole(sandbox: Sandbox) -> None:
    assert len(sandbox.commands.run("head -c 5000000 /dev/zero | tr '\\0' x").stdout) == 5_000_000


def test_a_sandbox_that_is_gone_is_not_running(real_key: str) -> None:
    sandbox = Sandbox.create(timeout=60, allow_internet_access=False)
    assert sandbox.is_running()
    sandbox.kill()
    assert not sandbox.is_running()
    with pytest.raises(SandboxNotRunningException):
        sandbox.commands.run("true")


def test_a_command_whose_sandbox_is_killed_says_so(real_key: str) -> None:
    sandbox = Sandbox.create(timeout=60, allow_internet_access=False)
    sleeping = sandbox.commands.run("sleep 600", background=True)
    sandbox.kill()
    with pytest.raises(TimeoutException, match="sandbox was killed or reached its end of life"):
        sleeping.wait()


def test_the_token_of_one_sandbox_opens_no_other_and_ends_with_its_key(
    real_up: Up, real_key: str, sandbox: Sandbox
) -> None:
    mine = {"X-Access-Token": str(sandbox._envd_access_token)}
    where = f"{real_up.url}/e2b/envd/health"
    with Sandbox.create(timeout=60, allow_internet_access=False) as other:
        for id_, status in ((sandbox.sandbox_id, 204), (other.sandbox_id, 401), ("sbx-none", 401)):
            asked = httpx.get(where, headers={**mine, "E2b-Sandbox-Id": id_}, trust_env=False)
            assert asked.status_code == status, asked.text
    assert httpx.get(f"{real_up.url}/v1/sandboxes", headers=mine, trust_env=False).status_code == 401


def test_a_stream_ends_when_its_key_ends(real_up: Up, real_key: str) -> None:
    """Whoever holds the token of a sandbox has no more than the key that it came from."""
    with Sandboxer(owner_file=real_up.owner_file, url=real_up.url) as owner:
        made = owner.keys.create("short", "e2b")
        key = api_key_of(owner.keys.issue_bearer(made.public_key).bearer_token)
        sandbox = Sandbox.create(timeout=60, allow_internet_access=False, api_key=key)
        following = sandbox.commands.run("while true; do echo on; sleep 0.2; done", background=True)
        owner.keys.end_bearer(made.public_key)
        # Cut off, without the end of the command.
        with pytest.raises(Exception, match=r"(?i)body|connection|closed|incomplete|stream"):
            following.wait()
        with pytest.raises(AuthenticationException):
            sandbox.commands.run("true")
    Sandbox.kill(sandbox.sandbox_id)
