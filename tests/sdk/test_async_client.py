"""The asyncio client against a served platform: the same words, awaited."""

from __future__ import annotations

import asyncio

import pytest

from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.commands import Chunk
from sandboxer.sdk.errors import NotFound
from sandboxer.wire.processes import ExecExit
from tests.support.platforms import Up


async def test_a_sandbox_is_made_used_and_gone(up: Up) -> None:
    async with AsyncSandboxer(owner_file=up.owner_file, url=up.url) as client:
        async with await client.create(labels={"kind": "async"}) as sandbox:
            assert (await sandbox.exec("echo hi")).stdout == "hi\n"
            assert [one.id async for one in client.list(labels={"kind": "async"})] == [sandbox.id]
        assert (await client.get(sandbox.id)).info.state == "destroyed"  # type: ignore[union-attr]
        with pytest.raises(NotFound):
            await client.get("sbx_" + "0" * 26)


async def test_many_run_at_once(up: Up) -> None:
    async with AsyncSandboxer(owner_file=up.owner_file, url=up.url) as client:
        async with await client.create() as sandbox, asyncio.TaskGroup() as group:
            tasks = [group.create_task(sandbox.exec(f"echo {number}")) for number in range(20)]
        assert [task.result().stdout for task in tasks] == [f"{number}\n" for number in range(20)]


async def test_streams_files_and_events(up: Up) -> None:
    client = AsyncSandboxer(owner_file=up.owner_file, url=up.url)
    async with client, await client.create() as sandbox:
        pieces = [piece async for piece in sandbox.stream("echo one; exit 4")]
        assert [p.data for p in pieces if isinstance(p, Chunk)] == [b"one\n"]
        assert isinstance(pieces[-1], ExecExit)
        assert pieces[-1].exit_code == 4
        await sandbox.files.write("/f", b"content")
        assert await sandbox.files.read("/f") == b"content"
        assert [info.name async for info in sandbox.files.list("/") if info.name == "f"] == ["f"]
        kinds = [event.kind async for event in sandbox.events(follow=False)]
        assert kinds[-1].endswith("ready")


async def test_a_terminal_that_says_nothing_is_waited_for_as_long_as_is_said(up: Up) -> None:
    client = AsyncSandboxer(owner_file=up.owner_file, url=up.url)
    async with client, await client.create() as sandbox, await sandbox.terminal.open(command="cat") as cat:
        with pytest.raises(TimeoutError):
            await cat.read(timeout_s=0.2)
        await cat.write(b"here\n")
        assert b"here" in (await cat.read(timeout_s=30) or b"")
