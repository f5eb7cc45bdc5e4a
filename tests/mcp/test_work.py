"""What goes on beside the answer: output as it comes, calls that are given up, files and logs, prompts."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path

import anyio
import httpx2 as httpx
import pytest
from mcp.shared.exceptions import MCPError

from mcp import Client
from sandboxer.edges.mcp import routes
from sandboxer.edges.mcp.routes import MAX_OF_ONE
from tests.support.mcp import ERAS, connected, token_of
from tests.support.platforms import Up, scripted_platform

PNG = bytes.fromhex("89504e470d0a1a0a")


async def made(client: Client) -> dict[str, str]:
    answer = await client.call_tool("createSandbox", {})
    assert not answer.is_error, answer.content
    return {"sandbox_id": answer.structured_content["id"]}


@pytest.mark.parametrize("era", ERAS)
async def test_output_is_told_while_the_program_runs(up: Up, token: str, era: str) -> None:
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with connected(up, token, era=era) as client:
        where = await made(client)
        ran = await client.call_tool(
            "runCommand", {**where, "command": "echo one; echo two >&2; exit 3"}, progress_callback=hear
        )
    assert sorted("".join(told).split()) == ["one", "two"]
    assert (ran.structured_content["exit_code"], ran.structured_content["stdout"]) == (3, "one\n")


@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_is_given_up_ends_its_command(up: Up, token: str, era: str) -> None:
    async with connected(up, token, era=era) as client:
        where = await made(client)
        began = asyncio.Event()

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            began.set()

        async def run() -> None:
            words = {**where, "command": "echo began; sleep 600"}
            await client.call_tool("runCommand", words, progress_callback=hear)

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await began.wait()
            group.cancel_scope.cancel()
        for _ in range(200):
            state = (await client.call_tool("getSandbox", where)).structured_content["state"]
            if state == "ready":
                break
            await asyncio.sleep(0.05)
        assert state == "ready", "the command still runs"


@pytest.mark.parametrize("era", ERAS)
async def test_files_are_resources(up: Up, token: str, era: str) -> None:
    async with connected(up, token, era=era) as client:
        where = await made(client)
        files = f"sandboxer://sandboxes/{where['sandbox_id']}/files"
        await client.call_tool("writeFile", {**where, "path": "/a b.txt", "content": "text"})
        picture = base64.b64encode(PNG).decode()
        await client.call_tool(
            "writeFile", {**where, "path": "/p.png", "content": picture, "encoding": "base64"}
        )
        listed = [str(one.uri) for one in (await client.list_resources()).resources]
        assert f"{files}/" in listed
        assert (await client.read_resource(f"{files}/a%20b.txt")).contents[0].text == "text"
        shown = (await client.read_resource(f"{files}/p.png")).contents[0]
        assert (shown.mime_type, base64.b64decode(shown.blob)) == ("image/png", PNG)
        assert "a b.txt" in (await client.read_resource(f"{files}/")).contents[0].text
        assert (await client.call_tool("readFile", {**where, "path": "/p.png"})).content[0].type == "image"
        with pytest.raises(MCPError, match="No such"):
            await client.read_resource(f"{files}/none")
        with pytest.raises(MCPError, match="nothing at"):
            await client.read_resource("sandboxer://elsewhere")


async def test_the_output_of_a_process_is_a_resource(up: Up, token: str) -> None:
    async with connected(up, token) as client:
        where = await made(client)
        began = await client.call_tool("startProcess", {**where, "command": "echo from a process"})
        process = {**where, "process_id": began.structured_content["process_id"]}
        await client.call_tool("waitProcess", process)
        uri = f"sandboxer://sandboxes/{where['sandbox_id']}/processes/{process['process_id']}/output"
        assert (await client.read_resource(uri)).contents[0].text == "from a process\n"


async def test_what_is_offered_is_what_was_asked_for(up: Up, token: str) -> None:
    counts = {}
    for tools in ("core", "", "all"):
        async with connected(up, token, tools=tools) as client:
            counts[tools] = len((await client.list_tools()).tools)
    assert counts["core"] == 12
    assert counts["core"] < counts[""] < counts["all"]


async def test_hints_say_what_a_tool_may_do(up: Up) -> None:
    async with connected(up) as client:
        hints = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
    assert hints["getSandbox"].read_only_hint
    assert hints["destroySandbox"].destructive_hint
    assert hints["destroySandbox"].idempotent_hint
    assert hints["createSandbox"].open_world_hint
    assert not hints["listFiles"].destructive_hint


async def test_prompts_are_filled_in(up: Up) -> None:
    async with connected(up) as client:
        names = [one.name for one in (await client.list_prompts()).prompts]
        assert "work" in names
        filled = await client.get_prompt("work", {"task": "count to three"})
        assert filled.messages[0].content.text.endswith("count to three")
        with pytest.raises(MCPError, match="argument 'task'"):
            await client.get_prompt("work", {})


async def test_who_keeps_too_many_sessions_is_served_without_one(up: Up) -> None:
    token = token_of(up, "collectors")
    begin = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}
    head = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(base_url=up.url, headers=head) as web:
        kept = [
            "mcp-session-id" in (await web.post("/mcp", json=call)).headers for _ in range(MAX_OF_ONE + 1)
        ]
    assert kept == [True] * MAX_OF_ONE + [False]
    async with connected(up, token, era="legacy") as client:
        assert not (await client.call_tool("listSandboxes", {})).is_error


async def test_who_comes_when_all_sessions_are_taken_is_served_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MAX_SESSIONS", 2)
    info = {"name": "host", "version": "1"}
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    call = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    with scripted_platform(tmp_path / "state") as running:
        answers = []
        for token in [token_of(running, "one")] * 2 + [token_of(running, "another")]:
            head = {"authorization": f"Bearer {token}", "accept": "application/json, text/event-stream"}
            async with httpx.AsyncClient(base_url=running.url, headers=head) as web:
                answers.append(await web.post("/mcp", json=call))
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert ["mcp-session-id" in answer.headers for answer in answers] == [True, True, False]


@pytest.mark.parametrize("method", [[], {}, None, 5])
async def test_a_stranger_whose_method_is_no_word_is_at_fault(up: Up, method: object) -> None:
    async with httpx.AsyncClient(base_url=up.url) as web:
        answer = await web.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": method})
    assert answer.status_code == 401


async def test_a_stranger_holds_no_stream(up: Up) -> None:
    async with httpx.AsyncClient(base_url=up.url) as web:
        assert (await web.get("/mcp", headers={"accept": "text/event-stream"})).status_code == 405


async def test_a_page_of_another_site_is_refused(up: Up) -> None:
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    async with httpx.AsyncClient(base_url=up.url) as web:
        refused = await web.post("/mcp", json=call, headers={"origin": "https://evil.example"})
    assert refused.status_code == 403


async def test_nobody_uses_the_session_of_another(up: Up, token: str) -> None:
    other = token_of(up, "others")
    async with connected(up, token, era="legacy") as client:
        where = await made(client)
    async with connected(up, other, era="legacy") as client:
        assert (await client.call_tool("getSandbox", where)).is_error
        assert not (await client.call_tool("listSandboxes", {})).structured_content["sandboxes"]
