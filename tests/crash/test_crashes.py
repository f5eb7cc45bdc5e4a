"""kill -9 at any point: what lived goes on, what was half done is settled, nothing leaks or is lost."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.crash.driver import Death, Round, serve
from tests.support.crash import dependencies, eventually, kill_everything, leftovers
from tests.support.real_backend import require_walls

ROUNDS = int(os.environ.get("SANDBOXER_TEST_CRASHES", "12"))
MANY_ROUNDS = 60
SEED = int(os.environ.get("SANDBOXER_TEST_SEED", "1"))

# A server that has its modules loaded: a round then costs what opening the platform costs.
_servers = multiprocessing.get_context("forkserver")
_servers.set_forkserver_preload(["tests.crash.driver"])


@contextmanager
def server(plan: Round) -> Iterator[tuple[BaseProcess, Connection]]:
    near, far = _servers.Pipe()
    process = _servers.Process(target=serve, args=(plan, far))
    process.start()
    far.close()
    try:
        yield process, near
    finally:
        process.kill()
        process.join(10)
        near.close()


def hear(pipe: Connection, word: str, *, within_s: float = 60) -> dict[str, tuple[str, str]]:
    """What the server says next, which must be `word` without complaints."""
    assert pipe.poll(within_s), f"the server did not say {word!r} within {within_s} s"
    said, complaints, states = pipe.recv()
    assert said == word
    assert complaints == []
    seen: dict[str, tuple[str, str]] = states
    return seen


def ended(pipe: Connection, process: BaseProcess) -> None:
    process.join(60)
    assert process.exitcode == 0


@pytest.mark.timeout(60 + 20 * MANY_ROUNDS)
@pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(MANY_ROUNDS, marks=pytest.mark.slow)])
def test_a_server_killed_at_random_points_loses_and_leaks_nothing(rounds: int) -> None:
    require_walls()
    dice = random.Random(SEED)
    with dependencies() as state:
        for number in range(rounds):
            with server(Round(state, SEED * 1000 + number)) as (process, pipe):
                if dice.random() < 0.3 and number:
                    # While it opens, recovers and settles.
                    time.sleep(dice.random() * 0.4)
                else:
                    hear(pipe, "audited")
                    time.sleep(dice.random() * 0.4)
                assert process.is_alive()
        with server(Round(state, 0, is_last=True)) as (process, pipe):
            seen = hear(pipe, "audited")
            # Several each on a free machine; beside others a round may end before its first.
            assert len(seen) > rounds / 2, "the servers hardly did anything"
            hear(pipe, "cleared")
            ended(pipe, process)
        assert eventually(lambda: leftovers(state)) == []


MAKING = [
    pytest.param(Death("os.mkdir", r"/run/sbx_\w+$"), id="before its folder"),
    pytest.param(Death("open", r"/run/sbx_\w+/box\.json$"), id="before its record"),
]
REMOVING = [
    pytest.param(Death("os.rmdir", r"/sbx_\w+/work$"), id="before its cgroups"),
    pytest.param(Death("os.remove", r"/run/sbx_\w+/box\.json$"), id="before its record"),
    pytest.param(Death("os.rmdir", r"/run/sbx_\w+$"), id="before its folder"),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("death", MAKING)
def test_a_server_killed_while_it_makes_a_spare_leaves_nothing(death: Death) -> None:
    """A spare has no record in the database, by which a start would find it."""
    require_walls()
    with dependencies() as state:
        dies(Round(state, SEED, is_idle=True, death=death))
        finds_nothing(state)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("death", REMOVING)
def test_a_server_killed_while_it_removes_a_spare_leaves_nothing(death: Death) -> None:
    require_walls()
    with dependencies() as state:
        # As it leaves, it removes the one that it has made, or was making.
        dies(Round(state, SEED, is_last=True, death=death))
        finds_nothing(state)


def dies(plan: Round) -> None:
    with server(plan) as (process, _):
        process.join(60)
        assert process.exitcode == -signal.SIGKILL


def finds_nothing(state: Path) -> None:
    with server(Round(state, SEED, is_last=True)) as (process, pipe):
        hear(pipe, "audited")
        hear(pipe, "cleared")
        ended(pipe, process)
    assert eventually(lambda: leftovers(state)) == []


@pytest.mark.timeout(120)
def test_after_a_reboot_of_the_host_sandboxes_are_stopped_with_their_disks() -> None:
    """Staged: the server and everything inside is killed, cgroups are gone, the pool is not mounted."""
    require_walls()
    with dependencies() as state:
        with server(Round(state, SEED)) as (_, pipe):
            hear(pipe, "audited")
            time.sleep(1.5)
        kill_everything(state)
        with server(Round(state, SEED, boot_id="00000000-0000-4000-8000-000000000000", is_last=True)) as (
            process,
            pipe,
        ):
            seen = hear(pipe, "audited")
            hear(pipe, "cleared")
            ended(pipe, process)
        lived = [reason for state_name, reason in seen.values() if state_name == "stopped"]
        assert "host_rebooted" in lived
        assert not [s for s in seen.values() if s[0] in ("ready", "active", "frozen")]
        assert eventually(lambda: leftovers(state)) == []
