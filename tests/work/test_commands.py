"""How a caller's words become a command, and what happens around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandboxer.backends.guest import Output, Stream
from sandboxer.backends.scripted.backend import Scripted
from sandboxer.identity.keys import Caller
from sandboxer.kernel.budget import Budget
from sandboxer.kernel.errors import IllegalTransition, InvalidRequest, NotFound, PathNotFound
from sandboxer.sandboxes.requests import CreateRequest
from sandboxer.sandboxes.use_cases import creation, pause
from sandboxer.settings import Settings
from sandboxer.wiring import Platform, open_platform
from sandboxer.work.exec import Run
from sandboxer.work.files import check_path
from sandboxer.work.lines import MAX_STRING_BYTES, Wanted, merged_env
from sandboxer.work.processes import _after

OWNER = Caller(public_key="sbx-pk-test", account="owner", is_owner=True)
LEASE = Budget().lease("owner")


@pytest.fixture
async def backend() -> Scripted:
    return Scripted(name="ext.namespaces")


@pytest.fixture
async def platform(tmp_path: Path, backend: Scripted) -> AsyncIterator[Platform]:
    async with open_platform(Settings(state_dir=tmp_path), backends={"ext.namespaces": backend}) as opened:
        yield opened


async def made(platform: Platform, **wanted: object) -> str:
    return (await creation.create(platform.sandboxes, CreateRequest(**wanted), OWNER)).id  # type: ignore[arg-type]


def test_a_commands_own_environment_wins_over_the_sandboxes_and_that_over_the_defaults() -> None:
    env = merged_env({"A": "box", "B": "box", "PATH": "/box"}, Wanted(shell="x", env={"A": "own"}))
    assert (env["A"], env["B"], env["PATH"], env["HOME"]) == ("own", "box", "/box", "/root")


def test_only_the_sandbox_knows_another_users_home() -> None:
    assert "HOME" not in merged_env({}, Wanted(shell="x", user="nobody"))
    assert merged_env({}, Wanted(shell="x", user="nobody", env={"HOME": "/h"}))["HOME"] == "/h"
    assert merged_env({}, Wanted(shell="x", user="0"))["HOME"] == "/root"


async def test_what_execve_would_refuse_is_refused_with_a_name(platform: Platform) -> None:
    sandbox_id = await made(platform)
    for wanted in (
        Wanted(argv=["echo", "x" * MAX_STRING_BYTES]),
        Wanted(argv=["echo"], env={"A": "ü" * (MAX_STRING_BYTES // 2)}),
        Wanted(argv=["echo", *(["x" * 1000] * 3000)]),
    ):
        with pytest.raises(InvalidRequest):
            await platform.work.exec.run(sandbox_id, OWNER, Run(wanted=wanted, timeout_s=5), LEASE)


async def test_a_folder_that_was_named_is_not_replaced_by_another(platform: Platform) -> None:
    sandbox_id = await made(platform)
    wanted = Wanted(argv=["pwd"], cwd="/none")
    with pytest.raises(PathNotFound) as refused:
        await platform.work.exec.run(sandbox_id, OWNER, Run(wanted=wanted, timeout_s=5), LEASE)
    assert refused.value.facts["path"] == "/none"


async def test_a_command_is_forgotten_at_its_end(platform: Platform, backend: Scripted) -> None:
    sandbox_id = await made(platform)
    for _ in range(3):
        run = Run(wanted=Wanted(argv=["true"]), timeout_s=5)
        assert (await platform.work.exec.run(sandbox_id, OWNER, run, LEASE)).end.exit_code == 0
    assert backend.boxes[sandbox_id].jobs == {}


async def test_nothing_runs_in_a_stopped_sandbox_or_in_someone_elses(platform: Platform) -> None:
    sandbox_id = await made(platform)
    run = Run(wanted=Wanted(argv=["true"]), timeout_s=5)
    other = Caller(public_key="sbx-pk-other", account="other")
    with pytest.raises(NotFound):
        await platform.work.exec.run(sandbox_id, other, run, LEASE)
    await pause.stop(platform.sandboxes, sandbox_id, OWNER)
    with pytest.raises(IllegalTransition):
        await platform.work.exec.run(sandbox_id, OWNER, run, LEASE)


async def test_a_time_limit_holds_across_a_restart_of_the_server(tmp_path: Path, backend: Scripted) -> None:
    settings = Settings(state_dir=tmp_path)
    async with open_platform(settings, backends={"ext.namespaces": backend}) as before:
        sandbox_id = await made(before)
        wanted = Wanted(argv=["sleep", "600"])
        started = await before.work.processes.start(sandbox_id, OWNER, wanted, timeout_s=1.0)
    async with open_platform(settings, backends={"ext.namespaces": backend}) as after:
        ended = await after.work.processes.wait(sandbox_id, OWNER, started.process_id, timeout_s=10)
        assert ended.exit is not None
        assert ended.exit.reason == "timed_out"


@pytest.mark.parametrize("path", ["", "x", "./x", "/a\x00b", "/" + "a" * 256, "/a" * 2048])
def test_a_path_that_no_kernel_takes_is_refused(path: str) -> None:
    with pytest.raises(InvalidRequest):
        check_path(path)


@pytest.mark.parametrize("path", ["/", "/a/../b", "/\udcff", "/new\nline", "/" + "a" * 255])
def test_where_a_path_leads_is_the_sandboxes_own_affair(path: str) -> None:
    assert check_path(path) == path


@pytest.mark.parametrize(
    ("at", "dropped", "data", "start", "expected"),
    [
        (0, 0, b"abc", 0, (b"abc", 0)),
        (0, 0, b"abc", 2, (b"c", 0)),
        (0, 0, b"abc", 3, None),
        (0, 0, b"abc", 9, None),
        (3, 0, b"def", 3, (b"def", 0)),
        # Ten bytes were lost before these: of them the reader misses those after its position.
        (0, 10, b"abc", 0, (b"abc", 10)),
        (0, 10, b"abc", 4, (b"abc", 6)),
        (0, 10, b"abc", 11, (b"bc", 0)),
    ],
)
def test_output_is_told_from_a_position_on(
    at: int, dropped: int, data: bytes, start: int, expected: tuple[bytes, int] | None
) -> None:
    fresh = _after(Output(Stream.STDOUT, data, dropped), at, start)
    assert (None if fresh is None else (fresh.data, fresh.dropped)) == expected
