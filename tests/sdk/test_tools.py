"""Tools that models call: what the table promises of them, and that a platform keeps it."""

from __future__ import annotations

import json

import pytest

from sandboxer.sdk.adapters.manifest import perform
from sandboxer.sdk.aio.client import AsyncSandboxer
from sandboxer.sdk.call import Answer
from sandboxer.sdk.sync.client import Sandboxer
from sandboxer.sdk.sync.sandbox import Sandbox
from sandboxer.sdk.tools import MOST_SHOWN, UnknownTool, WrongArguments, tool_named, tools
from sandboxer.wire.operations.table import OPERATIONS
from tests.support.platforms import Up

# As the agent of the paper finds them (`@tpmjs/tools-unsandbox`).
NAMED_ELSEWHERE = """
executeCodeAsync execute run runAsync getJob listJobs deleteJob getLanguages getShells createSession
getSession listSessions executeInSession freezeSession unfreezeSession lockSession unlockSession
createSessionSnapshot restoreSession deleteSession createService getService listServices
executeInService freezeService
unfreezeService lockService unlockService redeployService getServiceLogs createServiceSnapshot getServiceEnv
setServiceEnv deleteServiceEnv deleteService createSnapshot getSnapshot listSnapshots lockSnapshot
unlockSnapshot restoreSnapshot cloneSnapshot deleteSnapshot publishImage getImage listImages lockImage
unlockImage grantImageAccess revokeImageAccess transferImage setImageVisibility spawnFromImage
getImageTrustedKeys deleteImage healthCheck getClusterStatus getSystemStats listPools
"""


def test_every_tool_that_agents_know_elsewhere_is_offered() -> None:
    known = NAMED_ELSEWHERE.split()
    assert len(known) == 59
    assert set(known) <= {tool.name for tool in tools("standard")}


def test_a_dozen_is_the_core_and_all_is_every_operation_that_one_object_can_ask_for() -> None:
    assert len(tools("core")) == 12
    left_out = {one.id for one in OPERATIONS} - {tool.operation for tool in tools("all")}
    assert {"relayPort", "openTerminal", "followEvents", "packFolder"} <= left_out
    assert not {"createSandbox", "runCommand", "readFile", "sendSats"} & left_out


def test_what_a_model_reads_of_a_tool_is_short() -> None:
    assert max(len(tool.description) for tool in tools("all")) <= 140
    words = [json.dumps([tool.name, tool.description, tool.schema]) for tool in tools("core")]
    assert sum(map(len, words)) < 20_000


def test_a_tool_says_what_it_may_do() -> None:
    marks = {tool.name: (tool.is_read_only, tool.is_lossy, tool.is_repeatable) for tool in tools("all")}
    assert marks["getSandbox"] == (True, False, True)
    assert marks["destroySandbox"] == (False, True, True)
    assert marks["createSandbox"] == (False, False, False)
    assert marks["restoreSnapshot"] == (False, True, False)
    assert not any(lossy for read_only, lossy, _ in marks.values() if read_only)


def test_every_tool_makes_its_call_of_what_its_schema_names() -> None:
    """What the schema calls a field, the builder calls an argument."""
    words = {"string": "a", "integer": 1, "number": 1, "boolean": True, "array": ["a"], "object": {"a": "b"}}
    for tool in tools("all"):
        given = {name: words[one.get("type", "string")] for name, one in tool.schema["properties"].items()}
        if tool.is_upload:
            given["encoding"] = "utf-8"
        checked = tool.checked(given)
        if (found := tool.shows(checked)) is not None:
            checked[found[1]] = "sbx_1"
        assert tool.made(checked).operation == tool.operation


def test_what_a_tool_does_not_take_is_refused_with_what_it_takes() -> None:
    with pytest.raises(WrongArguments) as refused:
        tool_named("getSandbox").checked({"id": "dev"})
    assert "sandbox_id" in refused.value.next_step


@pytest.mark.parametrize("content", [5, {"a": {}}, ["a"], True])
def test_what_is_no_text_is_refused_as_content(content: object) -> None:
    given = {"sandbox_id": "dev", "path": "/workspace/a", "content": content}
    with pytest.raises(WrongArguments, match="text"):
        tool_named("writeFile").made(given)


def test_an_offer_that_nobody_knows_is_named() -> None:
    with pytest.raises(UnknownTool, match="'cor'") as refused:
        tools("cor")  # type: ignore[arg-type]
    assert "core, standard, all" in refused.value.next_step


async def test_a_reply_that_is_no_command_is_answered_with_what_one_looks_like(up: Up) -> None:
    async with AsyncSandboxer(owner_file=up.owner_file, url=up.url) as client:
        for reply in ("", "{", '{"command": 1}', '{"a":' * 20_000):
            result = await perform(client, reply)
            assert (result.is_error, result.text[:28]) == (True, "Reply with JSON of this form")
        assert not (await perform(client, 'So: {"command": {"name": "listSandboxes"}}')).is_error


def test_a_part_of_a_file_that_ends_within_a_character_is_text() -> None:
    part = ("a" * 10 + "é").encode()[:-1]
    assert tool_named("readFile").result(Answer(200, {}, part), is_whole=False).text.startswith("a" * 10)
    assert tool_named("readFile").result(Answer(200, {}, b"\xff\xfe")).content == b"\xff\xfe"


def test_a_sandbox_is_made_used_and_deleted_by_tools(client: Sandboxer) -> None:
    made = client.tools.run("createSandbox", {"name": "by-tools"})
    assert made.structured is not None
    sandbox_id = made.structured["id"]
    where = {"sandbox_id": "by-tools"}
    assert not client.tools.run("writeFile", {**where, "path": "/f", "content": "héllo"}).is_error
    assert client.tools.run("readFile", {**where, "path": "/f"}).text == "héllo"
    ran = client.tools.run("runCommand", {**where, "command": "echo hi"})
    assert ran.structured is not None
    assert (ran.structured["stdout"], ran.structured["exit_code"]) == ("hi\n", 0)
    gone = client.tools.run("destroySandbox", {"sandbox_id": sandbox_id})
    assert gone.structured is not None
    assert gone.structured["state"] == "destroyed"


def test_a_large_file_is_shown_in_part(client: Sandboxer, sandbox: Sandbox) -> None:
    sandbox.files.write("/large", b"x" * (MOST_SHOWN + 1))
    text = client.tools.run("readFile", {"sandbox_id": sandbox.id, "path": "/large"}).text
    assert text.startswith("x" * MOST_SHOWN + "\n[")
    last = client.tools.run(
        "readFile", {"sandbox_id": sandbox.id, "path": "/large", "range": f"bytes={MOST_SHOWN}-"}
    )
    assert last.text == "x"


def test_a_refusal_is_a_result_that_says_what_to_do(client: Sandboxer) -> None:
    for name, arguments in (
        ("getSandbox", {"sandbox_id": "nobodys"}),
        ("getSandbox", {}),
        ("noSuchTool", {}),
        ("runCommand", {"sandbox_id": "nobodys", "command": "true", "timeout_s": -1}),
        # As models write them.
        ("listSandboxes", "all of them"),
        ("listSandboxes", ["state", "ready"]),
    ):
        result = client.tools.run(name, arguments)
        assert result.is_error
        assert result.structured is not None
        assert result.structured["code"]
        assert result.text.endswith(".") or "errors" in result.structured


async def test_output_is_told_while_a_program_runs(up: Up) -> None:
    told: list[str] = []
    client = AsyncSandboxer(owner_file=up.owner_file, url=up.url)
    async with client, await client.create() as sandbox:
        arguments = {"sandbox_id": sandbox.id, "command": "echo one; echo two >&2; exit 3"}
        streamed = await client.tools.run("runCommand", arguments, on_output=told.append)
        whole = await client.tools.run("runCommand", arguments)
    assert sorted("".join(told).split()) == ["one", "two"]
    assert streamed.structured is not None
    assert whole.structured is not None
    for name in ("stdout", "stderr", "exit_code", "timed_out"):
        assert streamed.structured[name] == whole.structured[name]


def test_what_to_do_next_is_said_in_tools(client: Sandboxer, sandbox: Sandbox) -> None:
    missing = client.tools.run("readFile", {"sandbox_id": sandbox.id, "path": "/none"})
    assert "`listFiles`" in missing.text
    assert "/v1/" not in missing.text
    nobodys = client.tools.run("getSnapshot", {"snapshot_id": "nobodys"})
    assert "client." not in nobodys.text
