"""kill -9 at any point: what lived goes on, what was half done is settled, nothing leaks or is lost."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest

from tests.contract.ground import require_walls, state_folder
from tests.crash.driver import Round, serve

ROUNDS = int(os.environ.get("SANDBOXER_TEST_CRASHES", "25"))
SEED = int(os.environ.get("SANDBOXER_TEST_SEED", "1"))
CGROUPS = [
    path for path in (Path("/sys/fs/cgroup/unified"), *Path("/sys/fs/cgroup").glob("*")) if path.is_dir()
]

# A server that has its modules loaded: a round then costs what opening the platform costs.
_servers = multiprocessing.get_context("forkserver")
_servers.set_forkserver_preload(["tests.crash.driver"])


@contextmanager
def ground() -> Iterator[Path]:
    """A state folder; whatever a failed test leaves on the host is removed with it."""
    with state_folder() as state:
        try:
            yield state
        finally:
            kill_everything(state)


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


def cgroup_parents(state: Path) -> list[Path]:
    digest = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]
    roots = {path.resolve() for path in CGROUPS} | {Path("/sys/fs/cgroup")}
    return [root / "sandboxer" / digest for root in sorted(roots) if (root / "sandboxer" / digest).is_dir()]


def leftovers(state: Path) -> list[str]:
    """Everything of this state folder that is still on the host, seen from outside."""
    found = [
        f"cgroup {path}" for parent in cgroup_parents(state) for path in parent.iterdir() if path.is_dir()
    ]
    found += [f"disk {path.name}" for path in (state / "pool").iterdir() if "_" in path.name]
    found += [f"run {path}" for path in (state / "run").rglob("*") if "sbx_" in path.name]
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    found += [
        f"mount {where}" for where in mounts if where.startswith(f"{state}/") and where != f"{state}/pool"
    ]
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            if str(state).encode() in (proc / "cmdline").read_bytes():
                found.append(f"process {proc.name}")
        except OSError:
            continue
    return found


def remove_ground(state: Path) -> None:
    for parent in cgroup_parents(state):
        parent.rmdir()
    if os.path.ismount(state / "pool"):
        assert os.system(f"umount '{state}/pool'") == 0


def eventually(look: Callable[[], list[str]]) -> list[str]:
    """Kernel clean-up is asynchronous: "nothing left" means within five seconds."""
    deadline = time.monotonic() + 5
    while (found := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.mark.timeout(60 + 20 * ROUNDS)
def test_a_server_killed_at_random_points_loses_and_leaks_nothing() -> None:
    require_walls()
    dice = random.Random(SEED)
    with ground() as state:
        for number in range(ROUNDS):
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
            assert len(seen) > ROUNDS, "the servers hardly did anything"
            hear(pipe, "cleared")
            ended(pipe, process)
        assert eventually(lambda: leftovers(state)) == []


@pytest.mark.timeout(120)
def test_after_a_reboot_of_the_host_sandboxes_are_stopped_with_their_disks() -> None:
    """Staged: the server and everything inside is killed, cgroups are gone, the pool is not mounted."""
    require_walls()
    with ground() as state:
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


def kill_everything(state: Path) -> None:
    for parent in cgroup_parents(state):
        if (parent / "cgroup.kill").exists():
            (parent / "cgroup.kill").write_text("1")

    def remove() -> list[str]:
        """What is left of the cgroups; deepest first."""
        for parent in cgroup_parents(state):
            for folder in sorted((p for p in parent.rglob("*") if p.is_dir()), key=lambda p: -len(p.parts)):
                try:
                    folder.rmdir()
                except OSError:
                    continue
        return [str(path) for parent in cgroup_parents(state) for path in parent.iterdir() if path.is_dir()]

    assert eventually(remove) == []
    remove_ground(state)
